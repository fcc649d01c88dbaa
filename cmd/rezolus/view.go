// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"rezolus/internal/query"
	"rezolus/internal/web"
)

func newView() *cobra.Command {
	var address, webConfig string
	cmd := &cobra.Command{
		Use:     "view FILE",
		Short:   "Show a recording in the browser",
		Long:    "Serves the agent's page over a recording, which may still be growing, and prints\nits address. The Prometheus query API is there too, at /api/v1.",
		Example: "  rezolus view x.rzr\n  rezolus view x.rzr --listen 127.0.0.1:8080",
		Args:    exactly(1, "a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return view(cmd.Context(), args[0], address, webConfig)
		},
	}
	cmd.Flags().StringVarP(&address, "listen", "l", "127.0.0.1:0", "address of the page; port 0 takes a free one")
	cmd.Flags().StringVar(&webConfig, "web-config", "", "`file` with TLS and passwords, as the agent's web_config")
	return cmd
}

func view(ctx context.Context, path, address, webConfig string) error {
	recording, err := openRecording(ctx, path)
	if err != nil {
		return err
	}
	defer recording.Close()
	recording.warn(os.Stderr)
	server, err := secure(newServer(web.New(web.Options{
		Page: func() web.Page {
			// The file may have grown; where it cannot be read any more,
			// what is known of it stays.
			_ = recording.Refresh()
			info := recording.Info()
			page := web.Page{Mode: web.File, Title: path, Version: version, First: info.First, Last: info.Last, Interval: info.Interval}
			if len(info.Runs) > 0 {
				run := info.Runs[len(info.Runs)-1].Run
				page.Host, page.Kernel = run.Host, run.Kernel
			}
			return page
		},
		API:    query.API(query.New(query.Options{Lookback: lookback(recording.Info().Interval)}), recording, buildInfo()),
		Status: http.NotFoundHandler(),
		Listen: address,
	})), "--web-config", webConfig)
	if err != nil {
		return err
	}
	listener, err := listen(address)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %s://%s/\n", path, server.scheme(), listener.Addr())
	return serveUntil(ctx, server, listener)
}
