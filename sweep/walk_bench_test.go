package sweep

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkFindOf10000 finds 10,000 locks in one directory, and beside them as many leases with their counters and flock
// files in another. The metric "ratio" is its time over that of listing the two, measured in turn with it.
func BenchmarkFindOf10000(b *testing.B) {
	const entries = 10_000
	root := b.TempDir()
	dirs := []string{filepath.Join(root, "index", "8eb3"), filepath.Join(root, "leases")}
	put := func(dir, name string) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	for i := range entries {
		put(dirs[0], fmt.Sprintf("%d.lock", i))
		for _, suffix := range []string{leaseSuffix, epochSuffix, lockSuffix} {
			put(dirs[1], fmt.Sprintf("agent-%d%s", i, suffix))
		}
	}
	layout, err := Recognise(root)
	if err != nil {
		b.Fatal(err)
	}
	var finding, listing time.Duration
	for b.Loop() {
		start := time.Now()
		if found := layout.Find(b.Context()); len(found.Locks) != entries || len(found.Errors) != 0 {
			b.Fatalf("%d locks, %v", len(found.Locks), found.Errors)
		}
		finding += time.Since(start)
		b.StopTimer()
		start = time.Now()
		for _, dir := range dirs {
			f, err := os.Open(dir)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := f.Readdirnames(-1); err != nil {
				b.Fatal(err)
			}
			_ = f.Close()
		}
		listing += time.Since(start)
		b.StartTimer()
	}
	b.ReportMetric(finding.Seconds()/listing.Seconds(), "ratio")
}
