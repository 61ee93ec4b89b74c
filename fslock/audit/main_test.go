package audit_test

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"holdfast/fslock/audit"
)

// childEnv makes the test binary a process that appends: "PATH\nCOUNT".
const childEnv = "HOLDFAST_AUDIT_TEST_CHILD"

func TestMain(m *testing.M) {
	order := os.Getenv(childEnv)
	if order == "" {
		os.Exit(m.Run())
	}
	path, rest, _ := strings.Cut(order, "\n")
	count, err := strconv.Atoi(rest)
	if err == nil && count < 0 {
		err = audit.TornLog(path, die).Append(entry("torn"))
	}
	for i := range count {
		if err == nil {
			err = (&audit.Log{Path: path}).Append(audit.Entry{Action: "break", Path: "/x", ID: strconv.Itoa(i), Reason: strings.Repeat("r", 9000)})
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// die ends this process as nothing else does.
func die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {} // the signal may take a moment
}

func child(t *testing.T, path string, count int) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+path+"\n"+strconv.Itoa(count))
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
