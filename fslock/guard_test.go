package fslock

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"holdfast/fslock/record"
)

// beside makes a Locker take every file system for one with guards that are files.
func besideGuards(l *Locker) *Locker {
	l.local = func(string) (string, bool) { return "nfs", false }
	return l
}

// enter enters the guard of a lock that nobody has.
func enter(t *testing.T, l *Locker, path string) *guard {
	t.Helper()
	g, err := l.enterGuard(t.Context(), "test", path, 0)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGuardKeepsOthersOutUntilItIsLeft(t *testing.T) {
	for what, l := range map[string]*Locker{"directory": {}, "file": besideGuards(&Locker{})} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cache.lock")
			g := enter(t, l, path)
			for _, wait := range []time.Duration{0, 50 * time.Millisecond} {
				began := time.Now()
				_, err := l.enterGuard(t.Context(), "test", path, wait)
				e, ok := errors.AsType[*BusyError](err)
				if !ok || !errors.Is(err, ErrBlocked) || e.Op != "test" || e.Waited < wait {
					t.Fatalf("wait %v: %v", wait, err)
				}
				if took := time.Since(began); took > wait+10*time.Second {
					t.Errorf("wait %v took %v", wait, took)
				}
			}
			entered := make(chan *guard)
			go func() {
				next, err := l.enterGuard(t.Context(), "test", path, time.Minute)
				if err != nil {
					t.Error(err)
				}
				entered <- next
			}()
			select {
			case <-entered:
				t.Fatal("two have the guard")
			case <-time.After(20 * time.Millisecond):
			}
			g.leave()
			if next := <-entered; next != nil {
				next.leave()
			}
			enter(t, l, path).leave()
		})
	}
}

func TestGuardIsNotWaitedForLongerThanTheContextLets(t *testing.T) {
	l, path := &Locker{}, filepath.Join(t.TempDir(), "cache.lock")
	defer enter(t, l, path).leave()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	for _, wait := range []time.Duration{0, time.Hour} {
		if _, err := l.enterGuard(ctx, "test", path, wait); !errors.Is(err, ErrBlocked) {
			t.Error(err)
		}
	}
}

func TestGuardOfALocalDirectoryIsTheDirectory(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		skip(t, err)
	}
	l := &Locker{local: func(string) (string, bool) { return "ext4", true }}
	g := enter(t, l, filepath.Join(link, "a.lock"))
	defer g.leave()
	if _, err := l.enterGuard(t.Context(), "test", filepath.Join(dir, "b.lock"), 0); !errors.Is(err, ErrBlocked) {
		t.Errorf("the same directory by another name: %v", err)
	}
	if st, err := os.Stat(dir); err == nil {
		if dev, ino, ok := record.Inode(st); ok && *g.id != (record.Guard{Dev: dev, Ino: ino}) {
			t.Errorf("guard %+v", g.id)
		}
	}
	if inDir(t, dir) != "" {
		t.Errorf("made %s", inDir(t, dir))
	}
	t.Chdir(filepath.Dir(dir))
	t.Chdir(dir)
	if _, err := l.enterGuard(t.Context(), "test", "c.lock", 0); !errors.Is(err, ErrBlocked) {
		t.Errorf("the same directory by no name: %v", err)
	}
}

func TestGuardFileStaysEmptyAndIsNotShared(t *testing.T) {
	dir := t.TempDir()
	l := besideGuards(&Locker{})
	g := enter(t, l, filepath.Join(dir, "a.lock"))
	enter(t, l, filepath.Join(dir, "b.lock")).leave()
	g.leave()
	enter(t, l, filepath.Join(dir, "a.lock")).leave()
	if got := inDir(t, dir); got != ".a.lock.guard .b.lock.guard" {
		t.Errorf("there is %s", got)
	}
	if st, err := os.Lstat(filepath.Join(dir, ".a.lock.guard")); err != nil || st.Size() != 0 || !st.Mode().IsRegular() {
		t.Errorf("the guard is %v (%v)", st, err)
	}
}

// Whoever opened a guard before it was replaced has locked a file that nobody else will.
func TestGuardThatWasReplacedIsNotHad(t *testing.T) {
	local := &Locker{local: func(string) (string, bool) { return "ext4", true }}
	for what, l := range map[string]*Locker{"directory": local, "file": besideGuards(&Locker{})} {
		dir := filepath.Join(t.TempDir(), "dir")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, "cache.lock")
		p := l.guardOf(path)
		lock, _, err := p.try()
		if err != nil || lock == nil {
			t.Fatal(what, err)
		}
		held, err := lock.Stat()
		if err != nil || !p.names(held) {
			t.Fatal(what, err)
		}
		if err := os.Rename(p.path, p.path+".aside"); err != nil {
			t.Fatal(what, err)
		}
		if p.names(held) {
			t.Errorf("%s: it is gone", what)
		}
		if l == local {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		enter(t, l, path).leave()
		if p.names(held) {
			t.Errorf("%s: it is another one", what)
		}
		_ = lock.Close()
	}
}

func TestDirectoryThatIsMissingHasNoGuard(t *testing.T) {
	for what, l := range map[string]*Locker{
		"directory": {local: func(string) (string, bool) { return "ext4", true }}, "file": besideGuards(&Locker{}),
	} {
		path := filepath.Join(t.TempDir(), "gone", "cache.lock")
		_, err := l.enterGuard(t.Context(), "test", path, time.Minute)
		if e, ok := errors.AsType[*IOError](err); !ok || !errors.Is(err, fs.ErrNotExist) || e.Path != path {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestGuardNames(t *testing.T) {
	for _, name := range []string{
		"cache.lock", strings.Repeat("x", 248), strings.Repeat("x", 249), strings.Repeat("x", 255),
		strings.Repeat("é", 125), "x" + strings.Repeat("é", 126), strings.Repeat("\xff", 255),
	} {
		got := guardName(name)
		if len(got) > 255 || got[0] != '.' || !strings.HasSuffix(got, ".guard") || utf8.ValidString(name) && !utf8.ValidString(got) {
			t.Errorf("%q: %q", name, got)
		}
		if kept := got[1 : len(got)-len(".guard")]; !strings.HasPrefix(name, kept) || len(name) <= 248 && kept != name || len(kept) < min(len(name), 245) {
			t.Errorf("%q: kept %q", name, kept)
		}
	}
}
