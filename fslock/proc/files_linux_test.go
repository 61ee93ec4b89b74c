package proc_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"holdfast/fslock/proc"
)

// flockAndLeave takes a lock, leaves the descriptor to a child and exits.
func flockAndLeave(args []string) error {
	f, err := os.OpenFile(args[0], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	heir := exec.Command("/proc/self/exe")
	heir.Env = append(os.Environ(), helperEnv+"=live")
	heir.Stdin, heir.Stdout, heir.ExtraFiles = os.Stdin, os.Stdout, []*os.File{f}
	return heir.Start()
}

func waitForFlock(args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	if err := tell(proc.Local().Self()); err != nil {
		return err
	}
	return unix.Flock(int(f.Fd()), unix.LOCK_SH)
}

func newFile(t *testing.T) (path string, dev, ino uint64) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "x.lock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return path, uint64(st.Dev), st.Ino //nolint:unconvert // 32 bits on some architectures
}

// seesAll says whether this process may look into all others: even root may not look into everybody.
func seesAll(t *testing.T) bool {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*/fdinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if _, err := os.ReadDir(dir); errors.Is(err, fs.ErrPermission) {
			return false
		}
	}
	return os.Getuid() == 0 && proc.Local().Self().InitialNS
}

func TestFlockIsHeldByTheChildOfADeadTaker(t *testing.T) {
	path, dev, ino := newFile(t)
	if proc.Local().Flocked(ino) {
		t.Error("the kernel's list shows a lock that nobody took")
	}
	if holders, complete := proc.Local().FlockHolders(dev, ino); len(holders) != 0 || complete != seesAll(t) {
		t.Errorf("nobody holds it: got %+v, %v", holders, complete)
	}
	c := start(t, "flock and leave", nil, path)
	var heir, waiter proc.Self
	c.hear(t, &heir)
	if _, err := c.Process.Wait(); err != nil {
		t.Fatal(err)
	}
	start(t, "wait for a flock", nil, path).hear(t, &waiter)
	initialNS := proc.Local().Self().InitialNS
	names := func(holders []proc.FlockHolder) bool {
		if len(holders) == 0 || holders[0].PID != heir.PID || holders[0].Waiting || holders[0].Name == "" {
			return false
		}
		if len(holders) == 1 { // inside a pid namespace the kernel does not tell who waits for the dead
			return !initialNS
		}
		return len(holders) == 2 && holders[1].PID == waiter.PID && holders[1].Waiting && !holders[1].Stopped
	}
	eventually(t, "the child and the waiter are named", func() bool {
		holders, complete := proc.Local().FlockHolders(dev, ino)
		return names(holders) && complete == seesAll(t)
	})
	if holders, _ := proc.Local().Batch().FlockHolders(dev, ino); !names(holders) {
		t.Errorf("in a batch: got %+v", holders)
	}
	if holders, _ := proc.Local().FlockHolders(dev+1, ino); len(holders) != 0 {
		t.Errorf("on another device: got %+v", holders)
	}
	signal(t, heir.PID, syscall.SIGSTOP)
	eventually(t, "the child is seen to be stopped", func() bool {
		holders, _ := proc.Local().FlockHolders(dev, ino)
		return names(holders) && holders[0].Stopped
	})
	signal(t, heir.PID, syscall.SIGKILL)
	eventually(t, "nobody holds it", func() bool {
		holders, _ := proc.Local().FlockHolders(dev, ino)
		return !slices.ContainsFunc(holders, func(h proc.FlockHolder) bool { return h.PID == heir.PID })
	})
}

func TestFlockIsHeldByItsTaker(t *testing.T) {
	path, dev, ino := newFile(t)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if !proc.Local().Flocked(ino) || !proc.Local().Batch().Flocked(ino) {
		t.Error("the kernel's list does not show the lock")
	}
	holders, _ := proc.Local().FlockHolders(dev, ino)
	if len(holders) != 1 || holders[0].PID != os.Getpid() || holders[0].Waiting || holders[0].Stopped {
		t.Errorf("got %+v", holders)
	}
}

func TestWritersOfAFile(t *testing.T) {
	path, dev, ino := newFile(t)
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if pids, complete := proc.Local().Writers(dev, ino); len(pids) != 0 || complete != seesAll(t) {
		t.Errorf("open for reading: got %v, %v", pids, complete)
	}
	for range 2 {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	if pids, _ := proc.Local().Writers(dev, ino); !slices.Equal(pids, []int{os.Getpid()}) {
		t.Errorf("open for writing: got %v", pids)
	}
	if pids, _ := proc.Local().Writers(dev+1, ino); len(pids) != 0 {
		t.Errorf("on another device: got %v", pids)
	}
}
