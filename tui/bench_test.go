package tui

import (
	"fmt"
	"testing"
	"time"

	"holdfast/watch"
)

// many is a snapshot of n entries, nearly all of them live.
func many(n int, at time.Time) *watch.Snapshot {
	w := &world{at: at}
	for i := range n {
		w.lock(fmt.Sprintf("index/%016x/cache.lock", i), fmt.Sprintf("app-%d", i), time.Duration(i%40)*time.Second/2, alive(48377), nil)
	}
	return w.snapshot()
}

func BenchmarkViewOf10000(b *testing.B) {
	d := sit(b, screenFor(), 140, 40)
	d.see(many(10_000, noon))
	b.ResetTimer()
	for b.Loop() {
		d.press("j")
		_ = d.view()
	}
}

func BenchmarkSnapshotOf10000(b *testing.B) {
	d := sit(b, screenFor(), 140, 40)
	first, second := many(10_000, noon), many(10_000, noon)
	d.see(first)
	changes := watch.Diff(first, second)
	b.ResetTimer()
	for b.Loop() {
		d.tellAt(delivery{snapshot: second, changes: changes}, noon)
	}
}

func BenchmarkFilterOf10000(b *testing.B) {
	d := sit(b, screenFor(), 140, 40)
	d.see(many(10_000, noon))
	b.ResetTimer()
	for b.Loop() {
		d.filter, _ = parseFilter("app-12 !state:dead")
		d.refill()
	}
}
