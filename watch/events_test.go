package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

func TestOtherPeoplesFilesCostNoLook(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "data.bin"), nil)
	for _, c := range []struct {
		name string
		op   fsnotify.Op
		want bool
	}{
		{"data.bin", fsnotify.Write, false},
		{"data.bin", fsnotify.Create, false},
		{"gone", fsnotify.Create, false},
		{"sub", fsnotify.Create, true},
		{"sub", fsnotify.Chmod, true},
		{"x.lock", fsnotify.Write, true},
		{"x.lock", fsnotify.Remove, true},
		{"writer.lease", fsnotify.Chmod, true},
		{"a.lease.json", fsnotify.Rename, true},
		{"a.epoch", fsnotify.Create, true},
		{".x.lock.reclaim", fsnotify.Create, true},
		{".x.lock.tmp.1.2.3", fsnotify.Create, true},
		{".registry-tmp-abcdef.json", fsnotify.Create, true},
	} {
		e := (&Watcher{Roots: make([]Root, 1)}).engine(nil)
		e.roots[0].rootLook = &rootLook{path: dir}
		e.dirs[dir] = &watched{roots: []int{0}}
		e.hear(fsnotify.Event{Name: filepath.Join(dir, c.name), Op: c.op}, time.Now())
		file, whole := len(e.roots[0].queue) > 0, !e.roots[0].first.IsZero()
		if got := file || whole; got != c.want || file == whole && got {
			t.Errorf("%v of %s: the file %v, the root %v", c.op, c.name, file, whole)
		}
	}
}

func TestWhatTheKernelRefusesIsSaid(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{os.NewSyscallError("inotify_add_watch", syscall.ENOSPC), watchLimit},
		{fmt.Errorf("couldn't initialize inotify: %w", syscall.EMFILE), instanceLimit},
		{errors.New("odd"), "odd"},
	} {
		if got := reasonOf(c.err); !strings.Contains(got, c.want) {
			t.Errorf("%v: %q", c.err, got)
		}
	}
}

// An error that fsnotify tells of while it keeps everybody else out must not stop who wants to add a directory.
func TestErrorsOfTheKernelsWatcherStopNobody(t *testing.T) {
	s, err := openKernel()
	if err != nil {
		t.Skip(err)
	}
	top := t.TempDir()
	// When fsnotify learns that these were moved, their watches are gone: so many events come before, which nobody hears yet.
	for i := range 4 {
		dir, away := filepath.Join(top, fmt.Sprint(i)), filepath.Join(top, "away")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := s.Add(dir); err != nil {
			t.Fatal(err)
		}
		for j := range 2 * burst {
			put(t, filepath.Join(dir, fmt.Sprint(j)), nil)
		}
		if err := errors.Join(os.Rename(dir, away), os.RemoveAll(away)); err != nil {
			t.Fatal(err)
		}
	}
	timeout := time.After(10 * time.Second)
	for quiet := false; !quiet; {
		select {
		case <-s.Events():
		case <-time.After(200 * time.Millisecond):
			quiet = true
		}
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(s.Add(top), s.Close()) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
		if err := <-s.Errors(); err == nil && runtime.GOOS == "linux" { // it is closed
			t.Error("no error was told, so this tests nothing")
		}
	case <-timeout:
		t.Fatal("nothing can be added any more")
	}
}

// A directory that is not there when the source is asked for it may be back by now, and nobody tells of it.
func TestDirectoryThatWentBeforeItWasWatchedIsLookedForAgain(t *testing.T) {
	for refusal, want := range map[error]bool{syscall.ENOENT: true, syscall.ENOTDIR: true, syscall.EACCES: false, syscall.ENOSPC: false} {
		e := (&Watcher{Roots: make([]Root, 1)}).engine(nil)
		s := newTold()
		s.refuse(refusal)
		e.source = s
		if news, _ := e.add(0, t.TempDir(), place{dev: 1, ino: 1}); news != want {
			t.Errorf("%v: looked at again: %v", refusal, news)
		}
	}
}
