// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"

	"rezolus/internal/host"
)

// systemInfo serves /systeminfo: what the machine is made of, as it is now.
func systemInfo(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(host.ReadInventory("/")) // the client went away: nobody to tell
}
