package fslock

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// stat returns the fields of a process from the third on.
func stat(t *testing.T, pid int) []string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
}

// recordOf is the record of a process of this machine, as ours writes it: with its pid namespace, so that its death
// can be proven in a container, too.
func recordOf(t *testing.T, pid int, beat time.Duration, mod ...func(*record.Lock)) *record.Lock {
	t.Helper()
	self := proc.Local().Self()
	if self.BootID == "" || self.PIDNS == 0 {
		skip(t, "this machine does not tell its boot id or pid namespace")
	}
	ticks, err := strconv.ParseUint(stat(t, pid)[19], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return lockRecord(beat, append([]func(*record.Lock){func(r *record.Lock) {
		r.PID, r.Hostname, r.BootID, r.ProcessStartTime = uint32(pid), self.Host, &self.BootID, &ticks
		r.Ours.PIDNS, r.Ours.TimeNS = self.PIDNS, self.TimeNS
	}}, mod...)...)
}

func TestHolderStopsGoesOnAndDies(t *testing.T) {
	child, _ := start(t, "wait")
	pid := child.Process.Pid
	path := putLock(t, t.TempDir(), "inspect/8eb3/writer.lease", recordOf(t, pid, time.Minute))
	l := &Locker{}
	signal := func(sig os.Signal, state string) {
		t.Helper()
		if err := child.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the state "+state, func() bool { return stat(t, pid)[0] == state })
	}
	expect(t, l.Inspect(path).Verdict, want{verdict.Late, "", verdict.Event, 0})

	signal(syscall.SIGSTOP, "T")
	v := l.Inspect(path).Verdict
	expect(t, v, want{verdict.Stopped, "", verdict.Event, 0})
	if !v.Stuck || v.Next[0] != fmt.Sprintf("kill -CONT %d", pid) {
		t.Errorf("stuck = %v, next %q", v.Stuck, v.Next)
	}
	signal(syscall.SIGCONT, "S")
	expect(t, l.Inspect(path).Verdict, want{verdict.Late, "", verdict.Event, 0})

	// Its other threads may outlive the first: till the last is gone, it is alive.
	signal(syscall.SIGKILL, "Z")
	eventually(t, "a dead holder", func() bool { return l.Inspect(path).Verdict.State == verdict.Dead })
	v = l.Inspect(path).Verdict
	expect(t, v, want{verdict.Dead, "zombie", verdict.Now, 0})
	if !strings.Contains(v.Sentence, fmt.Sprintf("parent, pid %d", os.Getpid())) {
		t.Errorf("the parent is not named: %s", v.Sentence)
	}
	_ = child.Wait()
	expect(t, l.Inspect(path).Verdict, want{verdict.Dead, "gone", verdict.Now, 0})
}

func TestPidOfTheHolderBelongsToAnother(t *testing.T) {
	path := putLock(t, t.TempDir(), "writer.lease", recordOf(t, os.Getpid(), 45*time.Second, func(r *record.Lock) {
		*r.ProcessStartTime++
	}))
	v := (&Locker{}).Inspect(path).Verdict
	expect(t, v, want{verdict.Dead, "recycled", verdict.Now, 0})
	if comm := strings.TrimSpace(read(t, "/proc/self/comm")); !strings.Contains(v.Sentence, comm) {
		t.Errorf("the process that has the pid now, %q, is not named: %s", comm, v.Sentence)
	}

	path = putLock(t, t.TempDir(), "writer.lease", recordOf(t, os.Getpid(), 45*time.Second, func(r *record.Lock) {
		r.ProcessStartTime = nil
	}))
	if v := (&Locker{}).Inspect(path).Verdict; v.State != verdict.Late || !v.Flags.Has(verdict.Legacy) {
		t.Errorf("without a start: %v %v", v.State, v.Flags.Strings())
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestThreadOfAnotherProcessIsNoHolder(t *testing.T) {
	child, line := start(t, "thread")
	tid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || tid == child.Process.Pid {
		t.Fatalf("thread %q of process %d", line, child.Process.Pid)
	}
	path := putLock(t, t.TempDir(), "cache.lock", recordOf(t, child.Process.Pid, time.Second, func(r *record.Lock) {
		r.PID = uint32(tid)
	}))
	expect(t, (&Locker{}).Inspect(path).Verdict, want{verdict.Dead, "recycled", verdict.Now, 0})
}

func TestOwnProcessIsMine(t *testing.T) {
	path := putLock(t, t.TempDir(), "cache.lock", recordOf(t, os.Getpid(), 0, func(r *record.Lock) {
		r.Ours.BeatBootMS = proc.SinceBoot().Milliseconds() - 3000
	}))
	info := (&Locker{}).Inspect(path)
	expect(t, info.Verdict, want{verdict.Live, "", verdict.Event, verdict.Mine})
	if f := info.Facts; f.Booted {
		about(t, "the beat", f.Beat, -3*time.Second)
	} else if f.Record.Ours.TimeNS != 0 {
		t.Error("the beat by the boot-time clock does not count")
	}
}

func TestTornLockWithARealWriterIsHeld(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "cache.lock"), nil, time.Hour)
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := &Locker{}
	if w := l.Inspect(path).Facts.Writers; len(w) != 1 || w[0] != os.Getpid() {
		t.Errorf("writers = %v, want %d", w, os.Getpid())
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	expect(t, l.Inspect(path).Verdict, want{verdict.Unreadable, "malformed", verdict.Now, 0})
}

func TestReaderInARewriteSeesOneRecord(t *testing.T) {
	beat := func(i uint64) []byte { // heartbeat and nonce tell of which beat they are
		r := lockRecord(0, func(r *record.Lock) { r.HeartbeatAtMS, r.WriterEpoch = i, fmt.Sprint(i) })
		return r.EncodePadded(400)
	}
	path := put(t, filepath.Join(t.TempDir(), "cache.lock"), beat(1_000_000), 0)
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var stop atomic.Bool
	var writer sync.WaitGroup
	defer writer.Wait()
	defer stop.Store(true)
	writer.Go(func() {
		for i := uint64(1_000_000); !stop.Load(); i++ {
			if _, err := file.WriteAt(beat(i), 0); err != nil {
				t.Error(err)
				return
			}
		}
	})
	l := &Locker{Table: machine()}
	whole := 0
	for range 1000 {
		f := l.Inspect(path).Facts
		switch {
		case f.Record != nil && fmt.Sprint(f.Record.HeartbeatAtMS) == f.Record.WriterEpoch:
			whole++
		case f.Record != nil:
			t.Fatalf("heartbeat %d with the nonce %s", f.Record.HeartbeatAtMS, f.Record.WriterEpoch)
		case f.Problem.Torn:
			t.Fatalf("a lock that is being rewritten is torn: %v", f.Problem)
		}
	}
	if whole == 0 {
		t.Error("no record was read at all")
	}
}

// unprivileged runs what must see the modes of files, which do not count for root. Only this thread becomes another
// user; it ends with its goroutine.
func unprivileged(t *testing.T, look func()) {
	t.Helper()
	if os.Getuid() != 0 {
		look()
		return
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		const nobody = 65534
		err := unix.Setfsgid(nobody)
		if err == nil {
			err = unix.Setfsuid(nobody)
		}
		if err == nil {
			look()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		skip(t, "this thread cannot become another user: ", err)
	}
}

func TestWhatMayNotBeReadIsDenied(t *testing.T) {
	dir := t.TempDir()
	secret := putLock(t, dir, "secret.lock", lockRecord(0))
	shut := putLock(t, filepath.Join(dir, "shut"), "cache.lock", lockRecord(0))
	missing := filepath.Join(dir, "shut", "missing.lock")
	deadLock := putLock(t, dir, "dead.lock", lockRecord(time.Minute, dead))
	token := putLock(t, dir, ".dead.lock.reclaim", lockRecord(0))
	for path, mode := range map[string]os.FileMode{
		secret: 0, token: 0, deadLock: 0o644, filepath.Dir(shut): 0, dir: 0o755, filepath.Dir(dir): 0o755,
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Dir(shut), 0o700) })
	unprivileged(t, func() {
		l := &Locker{Table: machine()}
		info := l.Inspect(secret)
		expect(t, info.Verdict, want{verdict.Unreadable, "denied", verdict.Blocked, verdict.IsBlocked})
		if want := fmt.Sprintf("owned by uid %d, mode 0000", os.Getuid()); info.Facts.Problem.Detail != want {
			t.Errorf("detail = %q, want %q", info.Facts.Problem.Detail, want)
		}
		for _, path := range []string{shut, missing} {
			info := l.Inspect(path)
			expect(t, info.Verdict, want{verdict.Unreadable, "denied", verdict.Blocked, verdict.IsBlocked})
			if !strings.Contains(info.Facts.Problem.Detail, syscall.EACCES.Error()) || info.Token != nil {
				t.Errorf("in a directory that is shut: %v, token %v", info.Facts.Problem, info.Token)
			}
		}
		// A token that may not be read is there all the same.
		info = l.Inspect(deadLock)
		expect(t, info.Verdict, want{verdict.Dead, "gone", verdict.Blocked, verdict.IsBlocked})
		if info.Token == nil || info.Token.State != verdict.Unknown {
			t.Errorf("token = %+v", info.Token)
		}
	})
}
