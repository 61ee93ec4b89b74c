package fslock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/fslock/verdict"
)

// contend is what a helper process does with a lock: "hold PATH", "wait PATH" or "starve DIR".
func contend(order string) error {
	what, path, _ := strings.Cut(order, " ")
	switch what {
	case "hold": // says so when it has it, and never gives it up
		lock, err := (&Locker{}).Acquire(context.Background(), path)
		if err != nil {
			return err
		}
		fmt.Println(lock.WriterEpoch())
		_, _ = io.Copy(io.Discard, os.Stdin)
		return nil
	case "wait": // has it once, and leaves a file that says so
		fmt.Println("waiting")
		lock, err := (&Locker{}).Acquire(context.Background(), path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path+".got", nil, 0o600); err != nil {
			return err
		}
		return lock.Release()
	case "starve":
		return starve(path)
	default:
		return fmt.Errorf("unknown order %q", order)
	}
}

func TestHolderInAnotherProcessStopsAndDies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.lock")
	child, line := start(t, "contend\nhold "+path)
	l := &Locker{}
	held := func(what string, state verdict.State) {
		t.Helper()
		_, err := l.TryAcquire(path)
		wantErrors(t, what, err, ErrHeld)
		e, ok := errors.AsType[*ConflictError](err)
		if !ok || e.Holder == nil || int(e.Holder.PID) != child.Process.Pid || e.Holder.WriterEpoch != strings.TrimSpace(line) {
			t.Errorf("%s: the holder is not named: %v", what, err)
		} else if e.Verdict.State != state {
			t.Errorf("%s: seen as %v", what, e.Verdict.State)
		}
	}
	held("running", verdict.Live)
	if err := child.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a stopped holder", func() bool { return l.Inspect(path).Verdict.State == verdict.Stopped })
	held("stopped", verdict.Stopped)
	w := acquiring(t.Context(), l, path)
	eventually(t, "a waiter", func() bool { return len(tempsIn(t, filepath.Dir(path))) == 1 })
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	lock := w.got(t) // a zombie by now, or gone
	if err := lock.Verify(); err != nil {
		t.Error(err)
	}
	giveUp(t, lock)
	if got := names(t, filepath.Dir(path)); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

// In a tight loop it would take the lock again before anybody else has seen it free.
func TestReleaserInATightLoopStarvesNobody(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.lock")
	l := &Locker{}
	for range 3 {
		lock := take(t, l, path)
		start(t, "contend\nwait "+path)
		eventually(t, "a waiter", func() bool { return len(tempsIn(t, dir)) == 1 })
		turns := 0
		for ; ; turns++ {
			giveUp(t, lock)
			var err error
			if lock, err = l.Acquire(t.Context(), path); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(path + ".got"); err == nil {
				break
			}
			if turns == 1000 {
				t.Fatal("never")
			}
		}
		if turns > 10 {
			t.Errorf("it waited for %d turns", turns)
		}
		giveUp(t, lock)
	}
}

func TestTempOfADeadWaiterSlowsNobodyDown(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.lock")
	l := &Locker{}
	held := take(t, l, path)
	child, _ := start(t, "contend\nwait "+path)
	eventually(t, "a waiter", func() bool { return len(tempsIn(t, dir)) == 1 })
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	giveUp(t, held)
	const turns = 100
	began := time.Now()
	for range turns {
		lock, err := l.Acquire(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		giveUp(t, lock)
	}
	if d := time.Since(began); d > turns*pollInterval/2 {
		t.Errorf("%d turns took %v", turns, d)
	}
	if got := tempsIn(t, dir); len(got) != 1 {
		t.Errorf("temps: %q", got)
	}
}

func openFDs(t *testing.T) int {
	t.Helper()
	return len(names(t, "/proc/self/fd"))
}

func TestThousandCyclesLeaveNothingOpen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.lock")
	cycle := func() {
		l := &Locker{}
		giveUp(t, take(t, l, path))
		if _, err := l.TryAcquire(filepath.Join(dir, "no", "a.lock")); err == nil {
			t.Error("a lock without a directory")
		}
	}
	waited := func() {
		l := &Locker{}
		held := take(t, l, path)
		ctx, cancel := context.WithCancel(t.Context())
		one, two := acquiring(t.Context(), l, path), acquiring(ctx, l, path)
		cancel()
		giveUp(t, held)
		if <-two.done; two.err == nil {
			giveUp(t, two.lock) // its one attempt came after the release
		}
		giveUp(t, one.got(t))
	}
	cycle()
	waited()
	files, routines := openFDs(t), runtime.NumGoroutine()
	for range 1000 {
		cycle()
	}
	for range 20 {
		waited()
	}
	if n := openFDs(t); n != files {
		t.Errorf("%d descriptors, were %d", n, files)
	}
	eventually(t, "as few goroutines as before", func() bool { return runtime.NumGoroutine() <= routines })
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

func TestLostLocksLeaveNothingOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.lock")
	l := &Locker{}
	giveUp(t, take(t, l, path))
	files := openFDs(t)
	for range 50 {
		lock := take(t, l, path)
		if err := replaceBy(path, contentOf(t, path)); err != nil {
			t.Fatal(err)
		}
		if err := lock.Verify(); err != nil {
			t.Error(err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		wantErrors(t, "verify", lock.Verify(), ErrLost)
		giveUp(t, lock)
	}
	if n := openFDs(t); n != files {
		t.Errorf("%d descriptors, were %d", n, files)
	}
}

func TestWithoutDescriptorsNoLockIsLeft(t *testing.T) {
	start(t, "contend\nstarve "+t.TempDir())
}

// starve acquires with ever more descriptors to be had, and reports what should not be.
func starve(dir string) error {
	path := filepath.Join(dir, "a.lock")
	l := &Locker{}
	lock, err := l.TryAcquire(path)
	if err == nil {
		err = lock.Release()
	}
	if err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}); err != nil {
		return err
	}
	var fds []int
	fill := func(room int) {
		for {
			fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				break
			}
			fds = append(fds, fd)
		}
		for range room {
			_ = unix.Close(fds[len(fds)-1])
			fds = fds[:len(fds)-1]
		}
	}
	empty := func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		fds = nil
	}
	left := func(what string, room int) error {
		empty()
		entries, err := os.ReadDir(dir)
		if err == nil && len(entries) > 0 {
			err = fmt.Errorf("%s with room for %d descriptors left %v", what, room, entries)
		}
		return err
	}
	for room := range 8 {
		fill(room)
		lock, err := l.Acquire(context.Background(), path)
		switch {
		case err == nil && room == 0:
			return errors.New("acquired without a descriptor")
		case err != nil && room == 7:
			return fmt.Errorf("with room for %d descriptors: %w", room, err)
		case err == nil:
			fill(0)
			if err := errors.Join(lock.Verify(), lock.Release()); err != nil {
				return fmt.Errorf("held without a descriptor to be had: %w", err)
			}
			if err := left("a release", room); err != nil {
				return err
			}
		case !errors.Is(err, syscall.EMFILE):
			return fmt.Errorf("with room for %d descriptors: %w", room, err)
		default:
			if err := left("an acquisition", room); err != nil {
				return err
			}
		}
	}
	return nil
}

// flock(1) locks an empty file that it opens for reading, and waits on no heartbeat.
func TestEmptyFileThatIsFlockedIsHeld(t *testing.T) {
	path := put(t, filepath.Join(t.TempDir(), "a.lock"), nil, time.Hour)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	l := &Locker{}
	if _, err := l.TryAcquire(path); !errors.Is(err, ErrHeld) {
		t.Errorf("flocked: %v", err)
	}
	if info := l.Inspect(path); len(info.Facts.Writers) != 1 || info.Facts.Writers[0] != os.Getpid() || !info.Verdict.Flags.Has(verdict.IsBlocked) {
		t.Errorf("seen as %v, %v", info.Facts.Writers, info.Verdict.Sentence)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	lock, err := l.TryAcquire(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}
