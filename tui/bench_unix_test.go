//go:build unix

package tui

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/lease"
	"holdfast/watch"
)

// What the project allows the screen with 10,000 entries: percent of a core, and memory.
const (
	idleLimit   = 0.5
	busyLimit   = 3.0
	memoryLimit = 64 // MiB
)

// reading is what a measured screen says of itself.
type reading struct {
	CPU      time.Duration // of the whole process till now
	Resident float64       // MiB; 0: unknown
	Heap     float64       // MiB in use after a collection
	Entries  int
}

// measure is the main of a process that is the program as it is used, but that x writes a reading of it to a file.
func measure() int {
	dir := os.Getenv(crashVariable)
	w := &watch.Watcher{Roots: []watch.Root{{Path: os.Getenv(rootVariable)}}}
	s := &Screen{
		Watch: w.Run, Looked: w.Looked, Stores: w.Store, History: w.History, Locker: w.Locker(), Rescan: w.Rescan, Alone: true,
		Claimant: lease.Claimant{Owner: "screen", Block: "test"}, In: os.Stdin, Out: os.Stdout,
	}
	s.tests.crashDir = dir
	number := 0
	s.tests.onKey = func(h *harness, key string) {
		if key != "x" {
			return
		}
		r := reading{CPU: cpu(), Resident: resident()}
		if h.model.snap != nil {
			r.Entries = len(h.model.snap.Entries)
		}
		if number > 1 { // the last ones: what follows would be part of what is measured
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			r.Heap = float64(m.HeapAlloc) / (1 << 20)
			if path := os.Getenv("HOLDFAST_HEAP_PROFILE"); path != "" {
				if f, err := os.Create(path); err == nil {
					_ = pprof.WriteHeapProfile(f)
					_ = f.Close()
				}
			}
		}
		data, err := json.Marshal(r)
		if err == nil {
			path := filepath.Join(dir, fmt.Sprintf("reading-%d", number))
			if err = os.WriteFile(path+".new", data, 0o600); err == nil {
				err = os.Rename(path+".new", path)
			}
		}
		if err != nil {
			panic(err)
		}
		number++
	}
	if path := os.Getenv("HOLDFAST_CPU_PROFILE"); path != "" {
		if f, err := os.Create(path); err == nil && pprof.StartCPUProfile(f) == nil {
			defer pprof.StopCPUProfile()
		}
	}
	if err := s.Run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "holdfast:", err)
		return exitFailed
	}
	return 0
}

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is the memory of this process that is in use now, in MiB; 0 where there is no statm.
func resident() float64 {
	data, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.Atoi(fields[1])
	return float64(pages) * float64(os.Getpagesize()) / (1 << 20)
}

// BenchmarkProgram is the whole program on a terminal of 140x40 with 10,000 locks of a process that lives and beats no
// more: processor time in percent of a core, bytes written a second, memory. Each is printed with its limit.
func BenchmarkProgram(b *testing.B) {
	for _, busy := range []bool{false, true} {
		name, limit := "idle", idleLimit
		if busy {
			name, limit = "ten-changes", busyLimit
		}
		b.Run(name, func(b *testing.B) {
			root, crashes := b.TempDir(), b.TempDir()
			paths := fillWithLocks(b, root, 10_000)
			var written atomic.Int64
			master, cmd := startMeasured(b, root, crashes, &written)
			read := func(number int) (r reading) {
				b.Helper()
				path := filepath.Join(crashes, fmt.Sprintf("reading-%d", number))
				_, _ = master.WriteString("x")
				for begun := time.Now(); time.Since(begun) < patience; time.Sleep(10 * time.Millisecond) {
					if data, err := os.ReadFile(path); err == nil {
						if err := json.Unmarshal(data, &r); err != nil {
							b.Fatal(err)
						}
						return r
					}
				}
				b.Fatal("no reading came")
				return r
			}
			time.Sleep(10 * time.Second) // the first looks, and what comes after them
			stop := make(chan struct{})
			changed := make(chan int, 1)
			go func() { changed <- changeTen(b, paths, busy, stop) }()
			time.Sleep(time.Second)
			begun, bytes := time.Now(), written.Load()
			first := read(0)
			for b.Loop() {
				time.Sleep(20 * time.Second)
			}
			last := read(1)
			elapsed := time.Since(begun)
			bytes = written.Load() - bytes
			close(stop)
			changes := <-changed
			heap := read(2)
			b.ReportMetric(float64(last.CPU-first.CPU)/float64(elapsed)*100, "%core")
			b.ReportMetric(limit, "%core-limit")
			b.ReportMetric(float64(bytes)/elapsed.Seconds(), "written-B/s")
			b.ReportMetric(last.Resident, "resident-MiB")
			b.ReportMetric(memoryLimit, "MiB-limit")
			b.ReportMetric(heap.Heap, "heap-MiB")
			b.Logf("%d entries, %d changes in %v", last.Entries, changes, elapsed)
			_, _ = master.WriteString("q")
			_ = cmd.Wait()
		})
	}
}

// startMeasured starts the program on a terminal that is read and counted.
func startMeasured(b *testing.B, root, crashes string, written *atomic.Int64) (*os.File, *exec.Cmd) {
	b.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		b.Skip(err)
	}
	b.Cleanup(func() { _ = master.Close() })
	if err := pty.Setsize(master, &pty.Winsize{Rows: 40, Cols: 140}); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "CI=1", "TERM=xterm-256color", roleVariable+"="+measureRole, rootVariable+"="+root, crashVariable+"="+crashes)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	_ = slave.Close()
	b.Cleanup(func() { _ = cmd.Process.Kill() })
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := master.Read(buf)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	return master, cmd
}

// changeTen rewrites ten locks a second, each another one, until stop; nothing where nothing is to change.
func changeTen(b *testing.B, paths []string, busy bool, stop <-chan struct{}) (changes int) {
	b.Helper()
	every := time.NewTicker(100 * time.Millisecond)
	defer every.Stop()
	for {
		select {
		case <-stop:
			return changes
		case <-every.C:
		}
		if !busy {
			continue
		}
		path := paths[changes*7919%len(paths)]
		if err := replaceLock(path, time.Now()); err != nil {
			b.Error(err)
			return changes
		}
		changes++
	}
}

// fillWithLocks makes n locks of this process, in directories of 100, that have not beaten for an hour.
func fillWithLocks(b *testing.B, root string, n int) []string {
	b.Helper()
	paths := make([]string, n)
	at := time.Now().Add(-time.Hour)
	for i := range paths {
		dir := filepath.Join(root, "index", fmt.Sprintf("%016x", i/100))
		paths[i] = filepath.Join(dir, fmt.Sprintf("cache-%d.lock", i))
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = replaceLock(paths[i], at)
		}
		if err == nil {
			err = os.Chtimes(paths[i], at, at)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return paths
}

// replaceLock writes a lock of this process that beat at, as the originals do: by rename.
func replaceLock(path string, at time.Time) error {
	self := proc.Local().Self()
	l := record.Lock{
		PID: uint32(self.PID), Hostname: self.Host, CreatedAtMS: uint64(at.UnixMilli()), HeartbeatAtMS: uint64(at.UnixMilli()),
		WriterEpoch: fmt.Sprintf("writer-%d", at.UnixNano()), ProcessStartTime: &self.StartTicks, BootID: &self.BootID,
	}
	temp := filepath.Join(filepath.Dir(path), ".writing")
	if err := os.WriteFile(temp, l.Encode(), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
