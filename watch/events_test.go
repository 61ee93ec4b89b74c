package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
