package fslock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast/fslock/disktest"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

func TestWithoutPermissionItIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	shut := filepath.Join(dir, "shut")
	secret := putLock(t, open, "secret.lock", lockRecord(0))
	putLock(t, shut, "held.lock", lockRecord(0))
	for path, mode := range map[string]os.FileMode{dir: 0o755, filepath.Dir(dir): 0o755, open: 0o555, shut: 0, secret: 0} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = errors.Join(os.Chmod(open, 0o700), os.Chmod(shut, 0o700)) })
	unprivileged(t, func() {
		l := &Locker{Table: machine()}
		refusedAtOnce(t, l, filepath.Join(open, "a.lock"), open, "open", syscall.EACCES)
		refusedAtOnce(t, l, secret, open, "open", ErrUnreadable, syscall.EACCES)
		refusedAtOnce(t, l, filepath.Join(shut, "a.lock"), dir, "open", syscall.EACCES)
		refusedAtOnce(t, l, filepath.Join(shut, "held.lock"), dir, "open", syscall.EACCES)
	})
}

func TestDeadLockThatMayNotBeRemovedIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	path := putLock(t, dir, "a.lock", lockRecord(time.Minute, dead))
	for path, mode := range map[string]os.FileMode{path: 0o644, dir: 0o555, filepath.Dir(dir): 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	was := contentOf(t, path)
	unprivileged(t, func() {
		l := &Locker{Table: machine()}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for what, acquire := range map[string]func() (*Lock, error){
			"try":     func() (*Lock, error) { return l.TryAcquire(path) },
			"acquire": func() (*Lock, error) { return l.Acquire(ctx, path) },
		} {
			_, err := acquire()
			wantErrors(t, what, err, syscall.EACCES)
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: it was waited for", what)
			}
		}
	})
	if got := names(t, dir); len(got) != 1 || string(contentOf(t, path)) != string(was) {
		t.Errorf("left behind: %q", got)
	}
}

func TestReadOnlyFileSystemIsRefusedAtOnce(t *testing.T) {
	disktest.Small(t, func(t *testing.T, disk string) {
		putLock(t, disk, "dead.lock", lockRecord(time.Minute, dead))
		putLock(t, disk, "held.lock", lockRecord(0))
		if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		l := &Locker{Table: machine()}
		refusedAtOnce(t, l, filepath.Join(disk, "a.lock"), disk, "open", syscall.EROFS)
		_, err := l.TryAcquire(filepath.Join(disk, "dead.lock"))
		wantErrors(t, "a dead one", err, syscall.EROFS)
		_, err = l.Acquire(t.Context(), filepath.Join(disk, "dead.lock"))
		wantErrors(t, "a dead one", err, syscall.EROFS)
		// A waiter cannot announce itself there, nor ever get it.
		_, err = l.Acquire(t.Context(), filepath.Join(disk, "held.lock"))
		wantErrors(t, "a held one", err, syscall.EROFS)
	})
}

func TestWhatIsNoFileInTheLocksPlaceIsUnreadableAtOnce(t *testing.T) {
	for what, lay := range specials(t) {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.lock")
			if err := lay(path); err != nil {
				skip(t, "cannot make "+what+": ", err)
			}
			before, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			l := &Locker{}
			atOnce(t, func() {
				for what, acquire := range map[string]func() (*Lock, error){
					"try":     func() (*Lock, error) { return l.TryAcquire(path) },
					"acquire": func() (*Lock, error) { return l.Acquire(ctx, path) },
				} {
					_, err := acquire()
					wantErrors(t, what, err, ErrUnreadable)
					if errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: it was waited for", what)
					}
					if e, ok := errors.AsType[*ConflictError](err); !ok || e.Path != path || e.Verdict.State != verdict.Unreadable {
						t.Errorf("%s: %v", what, err)
					}
				}
			})
			if after, err := os.Lstat(path); err != nil || !unwritten(before, after) {
				t.Errorf("it was touched: %v, %v", after, err)
			}
			if got := names(t, dir); len(got) != 1 {
				t.Errorf("left behind: %q", got)
			}
		})
	}
}

func TestFIFOOrSocketInPlaceOfAHeldLockIsALoss(t *testing.T) {
	for _, what := range []string{"a FIFO", "a socket", "a symlink to a live lock"} {
		lay := specials(t)[what]
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.lock")
			lock := take(t, &Locker{}, path)
			if err := errors.Join(os.Remove(path), lay(path)); err != nil {
				skip(t, "cannot make "+what+": ", err)
			}
			atOnce(t, func() { wantErrors(t, "verify", lock.Verify(), ErrLost) })
			if !isLost(lock) {
				t.Error("the loss is not told")
			}
			giveUp(t, lock)
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("what is in its place was removed: %v", err)
			}
		})
	}
}

func TestAnyNameCanBeLocked(t *testing.T) {
	long := strings.Repeat("\xff", 245) + ".lock"
	for _, name := range []string{"\xff.lock", "a\x1b[2J.lock", "new\nline.lock", " ", "-rf", long} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		l := &Locker{}
		lock, err := l.TryAcquire(path)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if got := names(t, dir); len(got) != 1 || got[0] != name {
			t.Errorf("%q: %q", name, got)
		}
		w := acquiring(t.Context(), l, path)
		eventually(t, "a waiter", func() bool { return len(tempsIn(t, dir)) == 1 })
		giveUp(t, lock)
		giveUp(t, w.got(t))
		if got := names(t, dir); len(got) != 0 {
			t.Errorf("%q: left behind %q", name, got)
		}
	}
	_, err := (&Locker{}).TryAcquire(filepath.Join(t.TempDir(), "nul\x00.lock"))
	wantErrors(t, "NUL", err, unix.EINVAL)
}

// A file that another machine removes while it is read, as a network file system tells it, is looked at again.
func TestFileRemovedByAnotherMachineWhileItIsReadIsWaitedFor(t *testing.T) {
	stale := &IOError{Op: "acquire", Err: &record.Error{Op: "read", Problem: record.Denied, Err: syscall.ESTALE}}
	a := &attempt{}
	for i := range maxTransient {
		if err := a.mayWait(stale); err != nil {
			t.Fatalf("refusal %d: %v", i, err)
		}
	}
	wantErrors(t, "one more", a.mayWait(stale), syscall.ESTALE)
}
