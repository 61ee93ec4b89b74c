package watch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const watchesOfThisNamespace = "/proc/sys/user/max_inotify_watches"

// watchWithinLimit runs a watcher that may watch one directory, then many, and tells how it watches.
func watchWithinLimit(root string) int {
	limit := func(n string) error { return os.WriteFile(watchesOfThisNamespace, []byte(n), 0) }
	if err := limit("1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	told := ""
	w := &Watcher{Roots: []Root{{Path: root}}}
	_ = w.Run(ctx, func(s *Snapshot) {
		r := s.Roots[0]
		if how := r.Watch + " " + r.Reason; how != told {
			told = how
			fmt.Println(how)
		}
		switch {
		case r.Watch == pollMode && len(s.Entries) == 0:
			_ = os.WriteFile(filepath.Join(root, "leases", "a.epoch"), []byte("7\n"), 0o600)
		case r.Watch == pollMode:
			fmt.Println("polled")
			_ = limit("1000")
		case len(s.Entries) == 1:
			cancel()
		}
	})
	return 0
}

func TestAnInotifyLimitIsToldAndLeftAgain(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "leases"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "unshare", "-Ur", "sh", "-c", "echo 1 > "+watchesOfThisNamespace).Run(); err != nil {
		skip(t, "no user namespace with a limit of its own: "+err.Error())
	}
	cmd := child(t, "unshare", "limited", root)
	cmd.Args = append(cmd.Args, "-Ur", testBinary(t))
	out, err := cmd.Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err != nil || len(lines) != 3 || !strings.HasPrefix(lines[0], "poll "+watchLimit+": ") ||
		lines[1] != "polled" || strings.TrimSpace(lines[2]) != eventMode {
		t.Errorf("%v, %q", err, lines)
	}
}

// The end of a reason is cut where there is no room for it: what has to be raised stands at its beginning.
func TestTheReasonBeginsWithTheSetting(t *testing.T) {
	for err, want := range map[syscall.Errno]string{
		syscall.ENOSPC: "fs.inotify.max_user_watches is reached: ",
		syscall.EMFILE: "fs.inotify.max_user_instances (or open files) is reached: ",
	} {
		if got := reasonOf(os.NewSyscallError("inotify", err)); !strings.HasPrefix(got, want) {
			t.Errorf("%v: %q", err, got)
		}
	}
}
