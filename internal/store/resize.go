// SPDX-License-Identifier: Apache-2.0

package store

// Resize changes how many bytes the window may take, 0 for DefaultWindow. A
// smaller one drops its oldest ticks at once.
func (w *Window) Resize(bytes int) {
	if bytes <= 0 {
		bytes = DefaultWindow
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit, w.block = bytes, max(bytes/32, 4096)
	// What is left is never less than the latest block.
	for len(w.blocks) > 1 && w.used()-w.spare() > w.limit {
		w.evict()
	}
	w.free = nil // is of another size
}
