package fslock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// refusedAtOnce checks that neither a try nor an acquire without end waits for what waiting cannot mend, that the error
// names the path and the system's call, and that nothing is left in dir.
func refusedAtOnce(t *testing.T, l *Locker, path, dir string, call string, want ...error) {
	t.Helper()
	before := names(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, tried := l.TryAcquire(path)
	_, acquired := l.Acquire(ctx, path)
	for what, err := range map[string]error{"try": tried, "acquire": acquired} {
		wantErrors(t, what, err, want...)
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrHeld) {
			t.Errorf("%s: it was waited for: %v", what, err)
			continue
		}
		e, ok := errors.AsType[*IOError](err)
		if !ok || e.Op != "acquire" || e.Path != path || !strings.Contains(e.Error(), call) {
			t.Errorf("%s: %v, want %q in it", what, err, call)
		}
	}
	if got := strings.Join(names(t, dir), " "); got != strings.Join(before, " ") {
		t.Errorf("left behind: %q, before %q", got, before)
	}
}

func TestWhatWaitingCannotMendIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	put(t, filepath.Join(dir, "file"), []byte("text"), 0)
	for what, tc := range map[string]struct {
		path string
		call string
		want error
	}{
		"no directory":         {filepath.Join(dir, "no", "a.lock"), "open", fs.ErrNotExist},
		"a file for directory": {filepath.Join(dir, "file", "a.lock"), "open", syscall.ENOTDIR},
		"a name too long":      {filepath.Join(dir, strings.Repeat("n", 300)), "open", syscall.ENAMETOOLONG},
		"no name":              {"", "open", fs.ErrNotExist},
	} {
		t.Run(what, func(t *testing.T) {
			refusedAtOnce(t, &Locker{}, tc.path, dir, tc.call, tc.want)
		})
	}
	if got := contentOf(t, filepath.Join(dir, "file")); string(got) != "text" {
		t.Errorf("the file was written: %q", got)
	}
}

func TestReadOnlyLockerAcquiresNothing(t *testing.T) {
	dir := t.TempDir()
	refusedAtOnce(t, &Locker{ReadOnly: true}, filepath.Join(dir, "a.lock"), dir, "read-only", ErrReadOnly)
}

func TestRelativePathMeansTheDirectoryOfThatMoment(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	lock := take(t, &Locker{}, "a.lock")
	t.Chdir(t.TempDir())
	if err := lock.Verify(); err != nil || !filepath.IsAbs(lock.Path()) {
		t.Errorf("%s: %v", lock.Path(), err)
	}
	giveUp(t, lock)
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("left behind: %q", got)
	}
}

func TestDirectoryReachedThroughALinkIsTheSame(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Skip(err)
	}
	lock := take(t, &Locker{}, filepath.Join(link, "a.lock"))
	_, err := (&Locker{}).TryAcquire(filepath.Join(dir, "a.lock"))
	wantErrors(t, "by the other way", err, ErrHeld)
	giveUp(t, lock)
}

func TestLongNameIsWaitedForAndTaken(t *testing.T) {
	for what, name := range map[string]string{
		"250 bytes": strings.Repeat("n", 245) + ".lock",
		"255 bytes": strings.Repeat("n", 250) + ".lock",
		"letters":   strings.Repeat("ü", 120) + ".lock",
	} {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(t *testing.T, c *bootClock, path string) {
				path = filepath.Join(filepath.Dir(path), name)
				held := take(t, timed(4242, c), path)
				w := acquiring(t.Context(), timed(5151, c), path)
				time.Sleep(time.Second)
				if got := tempsIn(t, filepath.Dir(path)); len(got) != 1 {
					t.Errorf("temps: %q", got)
				}
				if err := held.Verify(); err != nil {
					t.Error(err)
				}
				giveUp(t, held)
				giveUp(t, w.got(t))
				// A dead holder's is taken over as well.
				putLock(t, filepath.Dir(path), name, lockRecord(0, dead))
				giveUp(t, take(t, timed(5151, c), path))
				if got := names(t, filepath.Dir(path)); len(got) != 0 {
					t.Errorf("left behind: %q", got)
				}
			})
		})
	}
}
