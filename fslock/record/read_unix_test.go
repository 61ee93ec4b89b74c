//go:build unix

package record

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// in fails the test instead of hanging it.
func in(t *testing.T, what string, call func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); call() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s hangs", what)
	}
}

func TestWhatIsNoFileIsUnreadableAtOnce(t *testing.T) {
	dir := t.TempDir()
	live := write(t, filepath.Join(dir, "live.lock"), load(t, "lock", "test.lock"))
	at := func(name string, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for path, what := range map[string]string{
		at("to-live", os.Symlink(live, filepath.Join(dir, "to-live"))):        "a symlink",
		at("dangling", os.Symlink("nowhere", filepath.Join(dir, "dangling"))): "a symlink",
		at("itself", os.Symlink("itself", filepath.Join(dir, "itself"))):      "a symlink",
		at("to-dir", os.Symlink(dir, filepath.Join(dir, "to-dir"))):           "a symlink",
		at("fifo", unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600)):            "a FIFO",
		at("no-fifo", unix.Mkfifo(filepath.Join(dir, "no-fifo"), 0o000)):      "a FIFO",
		at("dir", os.Mkdir(filepath.Join(dir, "dir"), 0o700)):                 "a directory",
		at("no-dir", os.Mkdir(filepath.Join(dir, "no-dir"), 0o000)):           "a directory",
		at("s", nil): "a socket",
		"/dev/null":  "a device",
	} {
		for _, read := range []func(string) (File, error){Read, ReadStable} {
			in(t, path, func() {
				_, err := read(path)
				var e *Error
				if !errors.As(err, &e) || e.Problem != NotRegular || e.Detail != what || e.Path != path {
					t.Errorf("%s: %v, want %s", path, err, what)
				}
			})
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 10 {
		t.Errorf("looking changed the directory: %v, %v", entries, err)
	}
}

func TestLinkAboveTheNameIsFollowed(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "x.lock"), []byte("x"))
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if f, err := Read(filepath.Join(link, "x.lock")); err != nil || string(f.Data) != "x" {
		t.Errorf("%q, %v", f.Data, err)
	}
	loop := filepath.Join(t.TempDir(), "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	_, err := Read(filepath.Join(loop, "x.lock"))
	isError(t, err, Denied, unix.ELOOP.Error())
}

func TestNamesAreBytes(t *testing.T) {
	for _, name := range []string{"\xff.lock", "a\x1b[2J.lock", strings.Repeat("x", 245) + ".lock", "new\nline.lock"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(beat1), 0o600); err != nil {
			skip(t, fmt.Sprintf("no such names here: %v", err))
		}
		f, err := Read(path)
		if err != nil || string(f.Data) != beat1 || f.Path != path {
			t.Errorf("%q: %+v, %v", name, f, err)
		}
	}
	_, err := Read(filepath.Join(t.TempDir(), strings.Repeat("x", 300)))
	isError(t, err, Denied, unix.ENAMETOOLONG.Error())
	_, err = Read("a\x00b")
	isError(t, err, Denied, "")
}

func TestOpenFileIsNotInherited(t *testing.T) {
	h, err := openFile(write(t, filepath.Join(t.TempDir(), "x.lock"), nil))
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	fd, _ := h.(descriptor)
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
}

func TestLookingLeavesNoTrace(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "x.lock"), []byte(beat1))
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		if _, err := ReadStable(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(filepath.Dir(path)); err == nil {
			t.Fatal("read a directory")
		}
	}
	is, err := os.Stat(path)
	if err != nil || !is.ModTime().Equal(was.ModTime()) || is.Mode() != was.Mode() {
		t.Errorf("changed from %v to %v, %v", was, is, err)
	}
	if after := openFiles(t); after > before+10 {
		t.Errorf("%d files open, %d before", after, before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	open := 0
	for fd := range 256 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil {
			open++
		}
	}
	return open
}

func TestModeIsWhatPackageOSSays(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	special := write(t, filepath.Join(dir, "special"), nil)
	if err := unix.Chmod(special, 0o7751); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, special, filepath.Join(dir, "fifo"), "/dev/null"} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := fileMode(uint32(widen(st.Mode))); got != fi.Mode() {
			t.Errorf("%s: %v, want %v", path, got, fi.Mode())
		}
	}
	for st, want := range map[uint32]fs.FileMode{
		unix.S_IFLNK | 0o777: fs.ModeSymlink | 0o777, unix.S_IFSOCK: fs.ModeSocket, unix.S_IFBLK: fs.ModeDevice,
		0: fs.ModeIrregular,
	} {
		if got := fileMode(st); got != want {
			t.Errorf("%o: %v, want %v", st, got, want)
		}
	}
	if got := unixMode(fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky | 0o640); got != 0o7640 {
		t.Errorf("%o", got)
	}
	if got := what(fs.ModeIrregular); got != "not a regular file" {
		t.Error(got)
	}
}

// An administrator acts on a user's files: what he makes there must not lock that user out.
func TestWhatRootMakesIsTheDirectorysOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away") // and only root needs to: no machine is missing anything
	}
	const nobody = 65534
	dir := t.TempDir()
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Skip(err) // a user namespace without that user
	}
	counter, lock, flock := filepath.Join(dir, "a.epoch"), filepath.Join(dir, "a.lock"), filepath.Join(dir, "b.lock")
	open := CreateOptions{
		Link:   func(string, string) error { return unix.EPERM },
		Rename: func(string, string) error { return unix.EINVAL },
	}
	temp, err := CreateTemp(filepath.Join(dir, "c.lock"), []byte("x"), open)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		Replace(counter, []byte("7\n"), ReplaceOptions{}), Create(lock, []byte("{}")), CreateEmpty(flock, 0o666), temp.Publish(filepath.Join(dir, "c.lock")),
	)
	temp.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.epoch", "a.lock", "b.lock", "c.lock"} {
		st, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if uid, _ := owner(st); uid != nobody {
			t.Errorf("%s belongs to uid %d", name, uid)
		}
	}
	if err := CreateEmpty(flock, 0o666); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a flock file that is there: %v", err)
	}
}
