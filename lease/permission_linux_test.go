package lease

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"holdfast/fslock/verdict"
)

func TestModesOfWhatIsWritten(t *testing.T) {
	for _, mask := range []int{0, 0o022, 0o077} {
		dir := t.TempDir()
		c := startChild(t)
		if a := c.call(order{Do: "umask", Umask: mask}); a.Err != "" {
			t.Fatal(a.Err)
		}
		c.claim(dir, agent, sameOwner("block-1"))
		if a := c.call(order{Do: "renew", Dir: dir, ID: agent}); a.Err != "" {
			t.Fatal(a.Err)
		}
		for suffix, mode := range map[string]fs.FileMode{leaseSuffix: 0o600, counterSuffix: 0o600, sectionSuffix: 0o666 &^ fs.FileMode(mask)} {
			if st, err := os.Lstat(filepath.Join(dir, agent+suffix)); err != nil || st.Mode() != mode {
				t.Errorf("umask %03o: %s is %v, want %v (%v)", mask, suffix, st.Mode(), mode, err)
			}
		}
	}
}

// nobody starts a child that is an ordinary user, whoever runs the test, and returns a directory that it can reach.
func nobody(t *testing.T) (*child, *Store) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	s := &Store{Dir: filepath.Join(dir, "leases")}
	must(t, os.Mkdir(s.Dir, 0o755))
	t.Cleanup(func() { _ = os.Chmod(s.Dir, 0o700) }) // an ordinary user could not remove what is in it
	if os.Getuid() != 0 {
		return startChild(t), s
	}
	// The test binary lies where an ordinary user may not go.
	exe, err := os.Executable()
	must(t, err)
	data, err := os.ReadFile(exe)
	must(t, err)
	copied := filepath.Join(dir, "child")
	must(t, os.WriteFile(copied, data, 0o755))
	must(t, os.Chmod(copied, 0o755))
	cmd := exec.CommandContext(t.Context(), copied)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	cmd.Dir = dir
	return runChild(t, cmd), s
}

func TestDirectoryThatMayNotBeWritten(t *testing.T) {
	claim := func(c *child, s *Store) answer {
		return c.call(order{Do: "claim", Dir: s.Dir, ID: agent, Claimant: sameOwner("block-1")})
	}
	check := func(t *testing.T, a answer, path, call string) {
		t.Helper()
		if !slices.Equal(a.Is, []string{"denied"}) || !strings.Contains(a.Err, path) || !strings.Contains(a.Err, call) || !strings.HasPrefix(a.Err, "claim lease agent-1: ") {
			t.Errorf("%+v", a)
		}
	}
	t.Run("no flock file is there", func(t *testing.T) {
		c, s := nobody(t)
		must(t, os.Chmod(s.Dir, 0o555))
		check(t, claim(c, s), s.path(agent, sectionSuffix), "open ")
	})
	t.Run("a flock file is there", func(t *testing.T) {
		c, s := nobody(t)
		put(t, s, sectionSuffix, nil, 0)
		must(t, os.Chmod(s.path(agent, sectionSuffix), 0o444))
		must(t, os.Chmod(s.Dir, 0o555))
		check(t, claim(c, s), s.path(agent, counterSuffix), "replace ")
		if a := c.call(order{Do: "inspect", Dir: s.Dir, ID: agent}); a.State != "free" {
			t.Errorf("%+v", a)
		}
	})
	t.Run("it may not be entered", func(t *testing.T) {
		c, s := nobody(t)
		must(t, os.Chmod(s.Dir, 0))
		check(t, claim(c, s), s.path(agent, sectionSuffix), "open ")
		if a := c.call(order{Do: "inspect", Dir: s.Dir, ID: agent}); a.State != "unreadable" || a.Cause != "denied" {
			t.Errorf("%+v", a)
		}
	})
}

func TestFlockFileThatMayOnlyBeReadIsStillLocked(t *testing.T) {
	t.Parallel()
	c, s := nobody(t)
	put(t, s, sectionSuffix, nil, 0)
	must(t, os.Chmod(s.path(agent, sectionSuffix), 0o444))
	must(t, os.Chmod(s.Dir, 0o777))
	c.claim(s.Dir, agent, sameOwner("block-1"))
	refused(t, s, other("owner-b"), "held")
	// It excludes: a claimant that may write the file finds it locked.
	c.send(order{Do: "renew", Dir: s.Dir, ID: agent, Step: "owned", Fault: "wait"})
	c.receive()
	l, err := s.Handle(agent, readLease(t, s).ClaimID)
	must(t, err)
	busyRenew := l.Release()
	if e, ok := errors.AsType[*BusyError](busyRenew); !ok || len(e.Holders) != 1 || e.Holders[0].PID != c.pid() {
		t.Errorf("inside is %+v (%v)", e, busyRenew)
	}
	c.send(order{Do: "go"})
	if a := c.receive(); a.Err != "" {
		t.Error(a.Err)
	}
}

func TestLeaseThatMayNotBeRead(t *testing.T) {
	c, s := nobody(t)
	must(t, os.Chmod(s.Dir, 0o777))
	putCounter(t, s, "1\n")
	granted(t, s, other("owner-b"), 2)
	must(t, os.Chmod(s.path(agent, sectionSuffix), 0o666))
	mode := "mode 0600"
	if os.Getuid() != 0 {
		// The child is who we are: nobody at all may read it then.
		mode = "mode 0000"
		must(t, os.Chmod(s.path(agent, leaseSuffix), 0))
	}
	a := c.call(order{Do: "inspect", Dir: s.Dir, ID: agent})
	if a.State != "unreadable" || a.Cause != "denied" || a.When != "blocked" || !strings.Contains(a.Sentence, fmt.Sprintf("owned by uid %d, %s", os.Getuid(), mode)) {
		t.Errorf("%+v", a)
	}
	writesNothing(t, s.Dir, func() {
		if a := c.call(order{Do: "claim", Dir: s.Dir, ID: agent, Claimant: sameOwner("block-1")}); !slices.Equal(a.Is, []string{"unreadable"}) {
			t.Errorf("%+v", a)
		}
	})
}

func TestLeaseOfAnotherUsersProcess(t *testing.T) {
	c, s := nobody(t)
	must(t, os.Chmod(s.Dir, 0o777))
	c.claim(s.Dir, agent, sameOwner("block-1"))
	inspect(t, s, want{state: verdict.Live, when: verdict.At, in: 15 * sec})
	c.kill()
	inspect(t, s, want{state: verdict.Dead, cause: "gone", when: verdict.Now})
}
