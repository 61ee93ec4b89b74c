//go:build unix

package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ordinary returns a directory that an ordinary user reaches, and how to run the program there as one, whoever runs the
// test.
func ordinary(t *testing.T) (dir string, holdfast func(args ...string) *exec.Cmd) {
	t.Helper()
	dir = t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// The program of the tests lies where an ordinary user may not go.
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "holdfast")
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+filepath.Join(dir, "state"))
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		return cmd
	}
}

// What lies in a directory that may not be searched is unreadable to every verb, by whatever it is named, and each says what
// to do.
func TestWhatIsDeniedIsUnreadableToEveryVerb(t *testing.T) {
	dir, holdfast := ordinary(t)
	closed := filepath.Join(dir, "closed")
	if err := os.MkdirAll(filepath.Join(closed, "leases"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(closed, 0o700) })
	var cases [][]string
	for _, path := range []string{"closed/x.lock", "closed/sub/x.lock", filepath.Join(closed, "x.lock"), "closed/leases/x.lease.json"} {
		cases = append(
			cases, []string{"why", path}, []string{"ls", "--check", path}, []string{"wait", path, "--timeout", "0"}, []string{"break", path},
		)
		if strings.HasSuffix(path, "x.lock") {
			cases = append(cases, []string{"acquire", path, "--timeout", "0"}, []string{"run", "--lock", path, "--timeout", "0", "--", "true"})
		}
	}
	for _, args := range append(
		cases, []string{"why", "x"}, []string{"why", "closed"}, []string{"ls", "--check", "closed"}, []string{"claim", "x", "--for", "1ms"},
		[]string{"epoch", "x"}, []string{"verify", "x", "--claim-id", "c"}, []string{"break", "x"}, []string{"wait", "x", "--timeout", "0"},
	) {
		if len(args) > 1 && !strings.Contains(strings.Join(args, " "), "closed") {
			args = append(args, "--root", "closed")
		}
		cmd := holdfast(args...)
		var complaint strings.Builder
		cmd.Stderr = &complaint
		if code := codeOf(cmd); code != 7 || !strings.Contains(complaint.String(), "a user who may read it") {
			t.Errorf("%q: exit code %d: %s", args, code, &complaint)
		}
	}
}

// A root of which nothing could be looked at is a failure, as of ls(1), also to whoever asks for no check. Its neighbours are
// shown.
func TestLsFailsWhereARootCannotBeLookedAt(t *testing.T) {
	dir, holdfast := ordinary(t)
	for _, d := range []string{"closed", "open", "half", "half/index", "half/index/closed"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "open/x.lock"), []byte(`{"pid":1,"hostname":"web02","created_at_ms":1,"heartbeat_at_ms":1}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"closed", "half/index/closed"} {
		closed := filepath.Join(dir, d)
		if err := os.Chmod(closed, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(closed, 0o700) })
	}
	for _, c := range []struct {
		args       []string
		code       int
		out, error string
	}{
		{[]string{"closed"}, 1, "so nothing is known", "closed: permission denied"},
		{[]string{"closed", "--json"}, 1, "permission denied", "closed: permission denied"},
		{[]string{"closed", "--jsonl"}, 1, "", "closed: permission denied"},
		{[]string{"closed", "open"}, 1, "x.lock", "closed: permission denied"},
		{[]string{"closed", "open", "--check"}, 7, "x.lock", "closed: permission denied"},
		{[]string{"open", "no/such/"}, 1, "x.lock", "it is not there"},
		{[]string{"open"}, 0, "x.lock", ""},
		{[]string{"half"}, 0, "could not be looked at", "a user who may read it"},
		{[]string{"half", "--check"}, 7, "could not be looked at", "a user who may read it"},
	} {
		cmd := holdfast(append([]string{"ls"}, c.args...)...)
		var out, complaint strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &complaint
		code := codeOf(cmd)
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(complaint.String(), c.error) || c.error == "" && complaint.Len() > 0 {
			t.Errorf("%q: exit code %d\n%s%s", c.args, code, &out, &complaint)
		}
		if n := strings.Count(complaint.String(), "closed: permission denied"); n > 1 {
			t.Errorf("%q: told %d times: %s", c.args, n, &complaint)
		}
	}
}

// Advice that helps nobody is none: --root only where an ID is looked up, and no word of the owner to whom that may be.
func TestWhatMayNotBeWrittenHasANextStep(t *testing.T) {
	dir, holdfast := ordinary(t)
	if err := os.Mkdir(filepath.Join(dir, "fixed"), 0o555); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		root bool
		args []string
	}{
		{false, []string{"acquire", "fixed/x.lock", "--timeout", "0"}},
		{true, []string{"claim", "x", "--for", "1ms", "--root", "fixed"}},
	} {
		cmd := holdfast(c.args...)
		var complaint strings.Builder
		cmd.Stderr = &complaint
		code, says := codeOf(cmd), ""
		_, says, _ = strings.Cut(complaint.String(), "\n")
		if code != 1 || !strings.Contains(says, "The permissions of the file") || strings.Contains(says, "--root") != c.root || strings.Contains(says, "owner") {
			t.Errorf("%q: exit code %d: %s", c.args, code, &complaint)
		}
	}
}
