package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
)

// followDeaths runs a Watcher that does not probe and returns its snapshots.
func followDeaths(tb testing.TB, root string) (snapshots <-chan *Snapshot, stop func()) {
	tb.Helper()
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		if os.Getenv("HOLDFAST_STRICT") == "1" {
			tb.Fatal(err)
		}
		tb.Skip(err)
	}
	_ = unix.Close(fd)
	news := make(chan *Snapshot, 1000)
	w := &Watcher{Roots: []Root{{Path: root}}}
	e := w.engine(func(s *Snapshot) { news <- s })
	e.tickAt = time.Now().Add(time.Hour)
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.run(ctx) }()
	return news, func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("Run returned %v", err)
		}
	}
}

func awaitSnapshot(tb testing.TB, snapshots <-chan *Snapshot, ok func(*Snapshot) bool) *Snapshot {
	tb.Helper()
	for deadline := time.After(30 * time.Second); ; {
		select {
		case s := <-snapshots:
			if ok(s) {
				return s
			}
		case <-deadline:
			tb.Fatal("never")
		}
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, link := range links {
		if what, err := os.Readlink(link); err == nil &&
			(strings.Contains(what, "pidfd") || strings.Contains(what, "inotify")) {
			n++
		}
	}
	return n
}

func TestTheKernelTellsOfADeathBeforeAnyProbe(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, c := range []struct {
		name  string
		die   func(who proc.Self, kill func())
		cause proc.Cause
	}{
		{"a zombie", func(who proc.Self, _ func()) { _ = syscall.Kill(who.PID, syscall.SIGKILL) }, proc.Zombie},
		{"reaped", func(_ proc.Self, kill func()) { kill() }, ""}, // it may be seen before it is reaped
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			lock := filepath.Join(root, "index", "8eb3", "cache.lock")
			leases := filepath.Join(root, "leases")
			lease := filepath.Join(leases, "a.lease.json")
			who, kill := startHolder(t)
			other, killOther := startHolder(t)
			before := openDescriptors(t)
			putLock(t, lock, newLock(who, time.Now()))
			putLease(t, leases, newLease(who, "a", time.Now()))
			putLease(t, leases, newLease(other, "b", time.Now()))
			snapshots, stop := followDeaths(t, root)
			awaitSnapshot(t, snapshots, func(s *Snapshot) bool { return is(s, lock, verdict.Live) && is(s, lease, verdict.Live) })
			c.die(who, kill)
			s := awaitSnapshot(t, snapshots, func(s *Snapshot) bool { return is(s, lock, verdict.Dead) && is(s, lease, verdict.Dead) })
			if is := find(s, lock).Verdict.Cause; c.cause != "" && is != string(c.cause) {
				t.Errorf("it died of %q", is)
			}
			lease = filepath.Join(leases, "b.lease.json")
			if !is(s, lease, verdict.Live) {
				t.Errorf("another died too:\n%s", lines(s))
			}
			// The first death could be seen by the look that follows when directories are watched anew; this one only by
			// the full look, which comes 5 s after the last.
			killed := time.Now()
			c.die(other, killOther)
			s = awaitSnapshot(t, snapshots, func(s *Snapshot) bool { return is(s, lease, verdict.Dead) })
			if took := s.Time.Sub(killed); took > scanGap-2*time.Second {
				t.Errorf("it took %v", took)
			}
			stop()
			kill()
			killOther()
			if after := openDescriptors(t); after > before {
				t.Errorf("%d descriptors are open, %d were before", after, before)
			}
		})
	}
}

// BenchmarkKillToVerdict kills the holder of a lease among 1,000 and waits for the snapshot that calls it dead, at a
// moment at which nothing else was emitted for a while. The metric is the median.
func BenchmarkKillToVerdict(b *testing.B) {
	root := b.TempDir()
	leases := filepath.Join(root, "leases")
	for i := range 1000 {
		putLease(b, leases, newLease(proc.Local().Self(), fmt.Sprintf("other-%d", i), time.Now()))
	}
	snapshots, stop := followDeaths(b, root)
	defer stop()
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		id := fmt.Sprintf("a-%d", i)
		path := filepath.Join(leases, id+".lease.json")
		who, kill := startHolder(b)
		putLease(b, leases, newLease(who, id, time.Now()))
		awaitSnapshot(b, snapshots, func(s *Snapshot) bool { return is(s, path, verdict.Live) })
		time.Sleep(2 * emitGap)
		b.StartTimer()
		began := time.Now()
		kill()
		awaitSnapshot(b, snapshots, func(s *Snapshot) bool { return is(s, path, verdict.Dead) })
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "median-ms")
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
}
