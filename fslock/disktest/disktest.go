// Package disktest is what tests and benchmarks of files share: disks of their own, and the comparison with bare calls.
package disktest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Places runs a benchmark in memory and on an ext4 with a journal of its own, each skipped where it cannot be had: a
// root file system without a journal is slow with recent deletions, and tells nothing.
func Places(b *testing.B, bench func(b *testing.B, dir string)) {
	b.Helper()
	b.Run("tmpfs", func(b *testing.B) {
		dir, err := os.MkdirTemp("/dev/shm", "holdfast") //nolint:usetesting // TempDir need not be in memory
		if err != nil {
			b.Skip(err)
		}
		b.Cleanup(func() { _ = os.RemoveAll(dir) })
		bench(b, dir)
	})
	b.Run("ext4", func(b *testing.B) { bench(b, ext4(b)) })
}

// ext4 mounts one from a file.
func ext4(b *testing.B) string {
	b.Helper()
	image, dir := filepath.Join(b.TempDir(), "image"), b.TempDir()
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(64<<20), f.Close())
	}
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range [][]string{{"mkfs.ext4", "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.CommandContext(b.Context(), c[0], c[1:]...).CombinedOutput(); err != nil {
			b.Skipf("no loop-mounted ext4 here: %v: %v %s", c, err, out)
		}
	}
	b.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			b.Errorf("umount: %v %s", err, out)
		}
	})
	return dir
}

// SideBySide runs the bare system calls that a call cannot do without beside the call itself, turn by turn, and prints
// medians of both and how many times slower ours is.
func SideBySide(b *testing.B, bare, ours func() error) {
	b.Helper()
	var of [2][]time.Duration
	for b.Loop() {
		for i, call := range []func() error{bare, ours} {
			began := time.Now()
			if err := call(); err != nil {
				b.Fatal(err)
			}
			of[i] = append(of[i], time.Since(began))
		}
	}
	var median [2]float64
	for i := range of {
		slices.Sort(of[i])
		median[i] = float64(of[i][len(of[i])/2]) / float64(time.Microsecond)
	}
	b.ReportMetric(0, "ns/op") // of both together: it says nothing
	b.ReportMetric(median[0], "us-bare")
	b.ReportMetric(median[1], "us")
	b.ReportMetric(median[1]/median[0], "x-bare")
}

// Kept is how many bytes of the heap what is dropped had kept.
func Kept[T any](dropped *T) uint64 {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what a pool kept goes with the second
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	runtime.KeepAlive(dropped)
	var none T
	*dropped = none
	return before - heap()
}

// ReadAll opens, reads and closes files, by several goroutines: what a look at them cannot do without.
func ReadAll(b *testing.B, files []string) {
	b.Helper()
	var next atomic.Int64
	var workers sync.WaitGroup
	for range max(4, runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			buf := make([]byte, 1<<16)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(files) {
					return
				}
				f, err := os.Open(files[i])
				if err == nil {
					_, err = f.Read(buf)
					_ = f.Close()
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
}
