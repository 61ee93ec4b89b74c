package watch

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast/fslock/disktest"
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// BenchmarkLook looks at 100 to 100,000 entries. The metric "ratio" is its time over that of opening, reading and closing
// the same files in parallel, measured in turn with it.
func BenchmarkLook(b *testing.B) {
	for _, entries := range []int{100, 1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(entries), func(b *testing.B) { benchmarkLook(b, entries) })
	}
}

func benchmarkLook(b *testing.B, entries int) {
	b.Helper()
	self, now := proc.Local().Self(), time.Now()
	write := func(b *testing.B, path string, data []byte) {
		b.Helper()
		if err := os.WriteFile(path, data, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for _, kind := range []struct {
		name string
		dir  string
		fill func(b *testing.B, dir string, i int) []string
	}{
		{"leases", "leases", func(b *testing.B, dir string, i int) []string {
			b.Helper()
			id := fmt.Sprintf("agent-%d", i)
			l := newLease(self, id, now)
			base := filepath.Join(dir, id)
			write(b, base+".lease.json", l.Encode())
			write(b, base+".epoch", record.EncodeCounter(l.Epoch))
			write(b, base+".lock", nil)
			return []string{base + ".lease.json", base + ".epoch"}
		}},
		{"locks", "index/8eb3", func(b *testing.B, dir string, i int) []string {
			b.Helper()
			l := newLock(self, now)
			path := filepath.Join(dir, fmt.Sprintf("%d.lock", i))
			write(b, path, l.Encode())
			return []string{path}
		}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			root := b.TempDir()
			dir := filepath.Join(root, filepath.FromSlash(kind.dir))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.Fatal(err)
			}
			var files []string
			for i := range entries {
				files = append(files, kind.fill(b, dir, i)...)
			}
			w := &Watcher{Roots: []Root{{Path: root}}}
			var looking, reading time.Duration
			for b.Loop() {
				start := time.Now()
				s, err := w.Look(b.Context())
				if err != nil || len(s.Entries) != entries {
					b.Fatalf("%d entries, %v", len(s.Entries), err)
				}
				looking += time.Since(start)
				b.StopTimer()
				start = time.Now()
				disktest.ReadAll(b, files)
				reading += time.Since(start)
				b.StartTimer()
			}
			b.ReportMetric(looking.Seconds()/reading.Seconds(), "ratio")
		})
	}
}
