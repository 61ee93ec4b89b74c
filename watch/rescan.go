package watch

import (
	"context"
	"time"
)

// Rescan has Run look at everything again at once, as it does every few seconds, and returns when that is done; what
// changed is emitted before. After a costly look it waits as long as Run rests. Where Run does not run it waits for
// that. The error is the context's.
func (w *Watcher) Rescan(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case <-ctx.Done():
		return ctx.Err()
	case w.requests() <- done:
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-done:
		return nil
	}
}

// requests is where Rescan asks Run.
func (w *Watcher) requests() chan chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rescans == nil {
		w.rescans = make(chan chan struct{})
	}
	return w.rescans
}

// rescan makes the next step a full look, of which done is told.
func (e *engine) rescan(done chan struct{}) {
	e.asked = append(e.asked, done)
	e.scanAt = time.Now()
}

// answer tells those who asked for a full look that it is over.
func (e *engine) answer() {
	for _, done := range e.asked {
		close(done)
	}
	e.asked = nil
}
