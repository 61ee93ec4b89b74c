package watch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestARescanSeesWhatNobodyTold(t *testing.T) {
	var w *Watcher
	inBubble(t, func(t *testing.T, b *bubble) {
		t.Helper()
		put(t, b.lease("untold"), []byte("{}"))
		time.Sleep(emitGap)
		if err := w.Rescan(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(b.began); b.count() != 2 || len(b.latest().Entries) != 1 || took >= scanGap {
			t.Errorf("%d snapshots, %d entries after %v", b.count(), len(b.latest().Entries), took)
		}
		if err := w.Rescan(t.Context()); err != nil || b.count() != 2 {
			t.Errorf("%d snapshots without a change, %v", b.count(), err)
		}
	}, func(watcher *Watcher, _ *bubble) { w = watcher })
}

func TestARescanEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := new(Watcher).Rescan(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without Run: %v", err)
		}
	})
}
