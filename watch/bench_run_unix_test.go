//go:build unix

package watch

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
)

// What a watcher of 10,000 entries may cost, in percent of a core, and take, in ms.
const (
	manyLeases  = 10_000
	perSecond   = 2000 // renewals
	busyLimit   = 25.0
	idleLimit   = 0.5
	changeLimit = 20.0
)

// fillWithLeases makes n leases of this process, and returns their directory.
func fillWithLeases(tb testing.TB, root string, n int) string {
	tb.Helper()
	dir := filepath.Join(root, "leases")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	at := time.Now().Add(-time.Hour)
	for i := range n {
		l := newLease(proc.Local().Self(), fmt.Sprintf("agent-%d", i), at)
		base := filepath.Join(dir, l.InstanceID)
		for suffix, data := range map[string][]byte{".lease.json": l.Encode(), ".epoch": record.EncodeCounter(l.Epoch), ".lock": nil} {
			if err := os.WriteFile(base+suffix, data, 0o600); err != nil {
				tb.Fatal(err)
			}
			if err := os.Chtimes(base+suffix, at, at); err != nil {
				tb.Fatal(err)
			}
		}
	}
	return dir
}

// renew writes a lease anew, as AgentMux does.
func renew(dir string, l record.Lease) error {
	temp := filepath.Join(dir, ".registry-tmp-renews.json")
	if err := os.WriteFile(temp, l.Encode(), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(dir, l.InstanceID+".lease.json"))
}

// renewForever renews 2,000 leases a second of those that fillWithLeases made, each in its turn, for the process that
// started this one, until the input ends.
func renewForever(dir string) {
	var over atomic.Bool
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); over.Store(true) }()
	self := proc.Local().Self()
	self.PID = os.Getppid()
	for i, begun := 0, time.Now(); !over.Load(); i++ {
		l := newLease(self, fmt.Sprintf("agent-%d", i*7919%manyLeases), time.Now())
		if err := renew(dir, l); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / perSecond)))
	}
}

// processorUse is the processor time of this process till now.
func processorUse() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// follow runs a watcher of root until the benchmark ends, and returns its snapshots once the first is there.
func follow(b *testing.B, root string) (news chan *Snapshot, latest func() *Snapshot) {
	b.Helper()
	news = make(chan *Snapshot, 1)
	var last atomic.Pointer[Snapshot]
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	first := make(chan struct{})
	w := &Watcher{Roots: []Root{{Path: root}}}
	go func() {
		ended <- w.Run(ctx, func(s *Snapshot) {
			if last.Swap(s) == nil {
				close(first)
			}
			select {
			case <-news: // whoever is late gets the newest
			default:
			}
			news <- s
		})
	}()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	<-first
	return news, last.Load
}

// BenchmarkChangeToSnapshot renews one of 10,000 leases and waits for the snapshot that has it.
func BenchmarkChangeToSnapshot(b *testing.B) {
	root := b.TempDir()
	dir := fillWithLeases(b, root, manyLeases)
	news, _ := follow(b, root)
	time.Sleep(time.Second)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		time.Sleep(30 * time.Millisecond)
		l := newLease(proc.Local().Self(), fmt.Sprintf("agent-%d", i*7919%manyLeases), time.Now())
		l.ClaimID = fmt.Sprint("claim-", i)
		path := filepath.Join(dir, l.InstanceID+".lease.json")
		b.StartTimer()
		if err := renew(dir, l); err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		for {
			if e := find(<-news, path); e.Holder().ClaimID == l.ClaimID {
				break
			}
		}
		took = append(took, time.Since(begun))
	}
	report(b, took, changeLimit)
}

func report(b *testing.B, took []time.Duration, limit float64) {
	b.Helper()
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
	b.ReportMetric(limit, "p99-limit-ms")
}

// BenchmarkTenThousand is what watching 10,000 leases costs while nothing happens, and while another process renews 2,000
// of them a second.
func BenchmarkTenThousand(b *testing.B) {
	for _, c := range []struct {
		name  string
		limit float64
		busy  bool
	}{{"idle", idleLimit, false}, {"renewals", busyLimit, true}} {
		b.Run(c.name, func(b *testing.B) {
			root := b.TempDir()
			dir := fillWithLeases(b, root, manyLeases)
			_, latest := follow(b, root)
			if c.busy {
				cmd := child(b, testBinary(b), "renew", dir)
				in, err := cmd.StdinPipe()
				if err != nil {
					b.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() {
					_ = in.Close()
					_ = cmd.Wait()
				})
			}
			time.Sleep(10 * time.Second) // the first looks, and what comes after them
			seq, used, begun := latest().Seq, processorUse(), time.Now()
			for b.Loop() {
				time.Sleep(20 * time.Second)
			}
			elapsed := time.Since(begun)
			b.ReportMetric(float64(processorUse()-used)/float64(elapsed)*100, "%core")
			b.ReportMetric(c.limit, "%core-limit")
			b.ReportMetric(float64(latest().Seq-seq)/elapsed.Seconds(), "snapshots/s")
			var newest time.Time
			for _, e := range latest().Entries {
				newest = later(newest, e.Beat())
			}
			if c.busy {
				b.ReportMetric(float64(time.Since(newest).Milliseconds()), "newest-ms")
			}
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "heap-MiB")
		})
	}
}
