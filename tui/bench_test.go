package tui

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
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

// BenchmarkSnapshotOf10000 is what the screen has to do when one entry of 10,000 changed, and how much of a core ten such a
// second take. To look for what changed is the inbox's, beside the screen. The picture after it is another line.
func BenchmarkSnapshotOf10000(b *testing.B) {
	for _, name := range []string{"", "state:live", "beat>5s", "app-12", "picture", "changes"} {
		b.Run(name, func(b *testing.B) {
			d := sit(b, screenFor(), 140, 40)
			d.see(many(10_000, noon))
			if name != "picture" && name != "changes" {
				d.filter, _ = parseFilter(name)
				d.refill()
			}
			last, i := d.snap, 0
			for b.Loop() {
				b.StopTimer()
				i++
				next := *last
				next.Seq++
				next.Entries = slices.Clone(last.Entries)
				e := *next.Entries[i*7919%len(next.Entries)]
				e.Raw = fmt.Append(nil, i)
				next.Entries[i*7919%len(next.Entries)] = &e
				changes := []watch.Change{{Time: noon, Event: watch.Renewed, Kind: e.Kind, Root: e.Root, Path: e.Path}}
				if name != "changes" {
					b.StartTimer()
				}
				d.tellAt(delivery{snapshot: &next, changes: changes}, noon)
				b.StartTimer()
				switch name {
				case "picture":
					_ = d.view()
				case "changes":
					watch.Diff(last, &next)
				}
				last = &next
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)*10/1e9*100, "%core-at-10/s")
		})
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

// BenchmarkSortOf10000 chooses and sorts all rows anew by each column, without a picture.
func BenchmarkSortOf10000(b *testing.B) {
	d := sit(b, screenFor(), 140, 40)
	d.see(many(10_000, noon))
	for c := range columns {
		b.Run(c.String(), func(b *testing.B) {
			d.sort = c
			for b.Loop() {
				d.reversed = !d.reversed
				d.refill()
			}
		})
	}
}

// BenchmarkTypingAFilterOver10000 is one typed character and the picture after it.
func BenchmarkTypingAFilterOver10000(b *testing.B) {
	d := sit(b, screenFor(), 140, 40)
	d.see(many(10_000, noon))
	d.press("/")
	for b.Loop() {
		for _, key := range []string{"a", "p", "p", "-", "backspace", "backspace", "backspace", "backspace"} {
			d.press(key)
			_ = d.view()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(8*b.N), "ns/key")
}

// BenchmarkBytesWritten is what a terminal of 80x24 gets while one entry of 10,000 changes ten times a second, and while
// none does and only the ages on the screen go on.
func BenchmarkBytesWritten(b *testing.B) {
	for _, changes := range []bool{false, true} {
		name := map[bool]string{false: "idle", true: "ten-changes"}[changes]
		b.Run(name, func(b *testing.B) {
			// The pictures are made before: of the screen alone is measured what it writes.
			var pictures []*watch.Snapshot
			for i := range 2 {
				s := many(10_000, time.Now())
				s.Seq = uint64(i + 1)
				s.Entries[0].Epoch, s.Entries[0].Name = uint64(i+1), fmt.Sprintf("app-%d-changed", i)
				pictures = append(pictures, s)
			}
			written := &tape{}
			s := screenFor()
			s.Out, s.tests.crashDir = written, b.TempDir()
			shown := make(chan struct{})
			s.Watch = func(ctx context.Context, emit func(*watch.Snapshot)) error {
				emit(pictures[0])
				close(shown)
				every := time.NewTicker(100 * time.Millisecond)
				defer every.Stop()
				for i := 1; changes; i++ {
					select {
					case <-ctx.Done():
						return nil
					case <-every.C:
					}
					next := *pictures[i%2]
					next.Seq = uint64(i + 1)
					emit(&next)
				}
				<-ctx.Done()
				return nil
			}
			ctx, cancel := context.WithCancel(b.Context())
			over := make(chan error, 1)
			go func() { over <- s.Run(ctx) }()
			<-shown
			for begun := time.Now(); !written.has("holdfast") && time.Since(begun) < 10*time.Second; {
				time.Sleep(50 * time.Millisecond)
			}
			time.Sleep(time.Second)
			before, begun := written.count(), time.Now()
			for b.Loop() {
				time.Sleep(3 * time.Second)
			}
			b.ReportMetric(float64(written.count()-before)/time.Since(begun).Seconds(), "written-B/s")
			cancel()
			if err := <-over; !errors.Is(err, context.Canceled) {
				b.Error(err)
			}
		})
	}
}

// BenchmarkMemoryOf10000 is what the heap keeps for a snapshot of 10,000 entries and the screen's rows of it.
func BenchmarkMemoryOf10000(b *testing.B) {
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := inUse()
		d := sit(b, screenFor(), 140, 40)
		s := many(10_000, noon)
		snapshot := inUse()
		d.see(s)
		_ = d.view()
		screen := inUse()
		b.ReportMetric(float64(snapshot-before)/(1<<20), "snapshot-MiB")
		b.ReportMetric(float64(screen-snapshot)/(1<<20), "screen-MiB")
		runtime.KeepAlive(d)
	}
}
