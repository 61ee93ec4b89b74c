package fslock

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const handOverEnv = "FSLOCK_TEST_HANDOVER"

// TestHandOverWorker is one contender of BenchmarkHandOver, not a test: for two seconds it takes the lock and gives it up
// as quickly as it can. It prints how long each hand-over from another process took, in ns, and its longest wait.
func TestHandOverWorker(t *testing.T) {
	path := os.Getenv(handOverEnv)
	if path == "" {
		t.SkipNow() // by itself it has nothing to prove: not a skip that the machine causes
	}
	last := path + ".last" // who released last, and when
	l := &Locker{}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		began := time.Now()
		lock, err := l.Acquire(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		data, _ := os.ReadFile(last)
		if len(data) == 16 && int(binary.LittleEndian.Uint64(data)) != os.Getpid() {
			fmt.Println("handed", now.UnixNano()-int64(binary.LittleEndian.Uint64(data[8:])))
		}
		fmt.Println("waited", now.Sub(began).Nanoseconds())
		data = binary.LittleEndian.AppendUint64(nil, uint64(os.Getpid()))
		data = binary.LittleEndian.AppendUint64(data, uint64(time.Now().UnixNano()))
		if err := os.WriteFile(last, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := lock.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkHandOver tells how long a lock takes from a release in one process to the next holder in another, where all
// take it as often as they can, and what the longest wait was.
func BenchmarkHandOver(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for _, n := range []int{2, 4, 8} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var handed, waited []time.Duration
			for b.Loop() {
				path := filepath.Join(b.TempDir(), "a.lock")
				var outs []*bytes.Buffer
				var cmds []*exec.Cmd
				for range n {
					cmd := exec.CommandContext(b.Context(), exe, "-test.run=^TestHandOverWorker$")
					out := &bytes.Buffer{}
					cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), handOverEnv+"="+path), out, os.Stderr
					if err := cmd.Start(); err != nil {
						b.Fatal(err)
					}
					outs, cmds = append(outs, out), append(cmds, cmd)
				}
				for i, cmd := range cmds {
					if err := cmd.Wait(); err != nil {
						b.Fatal(err, outs[i])
					}
					for line := range strings.Lines(outs[i].String()) {
						var what string
						var ns int64
						if n, _ := fmt.Sscan(line, &what, &ns); n != 2 {
							continue
						}
						switch what {
						case "handed":
							handed = append(handed, time.Duration(ns))
						case "waited":
							waited = append(waited, time.Duration(ns))
						}
					}
				}
			}
			if len(handed) == 0 {
				b.Fatal("it was never handed over")
			}
			slices.Sort(handed)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(len(handed)), "handovers")
			b.ReportMetric(float64(handed[len(handed)/2].Microseconds())/1000, "ms-median")
			b.ReportMetric(float64(handed[len(handed)*99/100].Microseconds())/1000, "ms-p99")
			b.ReportMetric(float64(slices.Max(waited))/float64(pollInterval), "longest-wait-polls")
		})
	}
}

// BenchmarkWaiter tells what a contender costs that waits for a minute's worth of polls, in percent of a core.
func BenchmarkWaiter(b *testing.B) {
	path := filepath.Join(b.TempDir(), "a.lock")
	l := &Locker{}
	lock := hold(b, l, path)
	defer func() { _ = lock.Release() }()
	var used, waited time.Duration
	for b.Loop() {
		before, began := cpuTime(), time.Now()
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
		if _, err := l.Acquire(ctx, path); err == nil {
			b.Fatal("it was not held")
		}
		cancel()
		used += cpuTime() - before
		waited += time.Since(began)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(100*float64(used)/float64(waited), "%cpu")
}

// cpuTime is what this process has used of the processors.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
