//go:build unix

package watch

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/fslock/proc"
)

// ordinary makes a command run as a user without rights over the tree, and lets that user read it.
func ordinary(t *testing.T, root string, command func(binary string) *exec.Cmd) *exec.Cmd {
	t.Helper()
	if os.Getuid() != 0 {
		return command(testBinary(t))
	}
	open := func(dir string) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// What the go tool built lies where only its user may go.
	dir := t.TempDir()
	open(dir)
	open(filepath.Dir(dir))
	open(filepath.Dir(root))
	binary := filepath.Join(dir, "watch.test")
	in, err := os.Open(testBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(binary, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := command(binary)
	// Where coverage is counted, that user needs a place for it.
	cover := filepath.Join(dir, "cover")
	if err := os.Mkdir(cover, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(cover, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "GOCOVERDIR="+cover)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return cmd
}

func TestWithoutRightsTheRestIsShown(t *testing.T) {
	root := t.TempDir()
	self, now := proc.Local().Self(), time.Now()
	for _, key := range []string{"open", "shut"} {
		putLock(t, filepath.Join(root, "index", key, "cache.lock"), newLock(self, now))
	}
	putLock(t, filepath.Join(root, "index", "open", "denied.lock"), newLock(self, now))
	modes := []struct {
		path string
		mode os.FileMode
	}{
		{"index/open/cache.lock", 0o444},
		{"index/open/denied.lock", 0},
		{"index/open", 0o555},
		{"index/shut", 0},
		{"index", 0o555},
		{".", 0o555},
	}
	for _, m := range modes {
		if err := os.Chmod(filepath.Join(root, m.path), m.mode); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(filepath.Join(root, m.path), 0o755) })
	}
	cmd := ordinary(t, root, func(binary string) *exec.Cmd { return child(t, binary, "look", root) })
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := string(out)
	want := fmt.Sprintf("root aft %[1]s\nlock %[1]s/index/open/cache.lock live\n"+
		"lock %[1]s/index/open/denied.lock unreadable (denied) stuck\nerror %[1]s/index/shut: ", root)
	if !strings.HasPrefix(got, want) || !strings.Contains(got, "permission denied") || strings.Count(got, "\n") != 4 {
		t.Errorf("got\n%swant\n%s...", got, want)
	}
}
