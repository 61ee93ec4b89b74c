package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/tui/cli"
)

// ends runs the program to its end. Its audit log is the test's own.
func ends(t *testing.T, state string, args ...string) (code int, out, complaint string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "holdfast", args...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
	var o, e strings.Builder
	cmd.Stdout, cmd.Stderr = &o, &e
	return codeOf(cmd), o.String(), e.String()
}

// told starts the program and waits until it has said a line on standard error.
func told(t *testing.T, args ...string) (cmd *exec.Cmd, line string, out *bytes.Buffer) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), "holdfast", args...)
	out = &bytes.Buffer{}
	cmd.Stdout = out
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(pipe)
	line, err = lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%v: it says %q and no more: %v", args, line, err)
	}
	return cmd, line, out
}

// lock writes a lock of another machine with a heartbeat that long ago.
func lock(t *testing.T, path, writer string, pid uint32, host string, beat time.Duration) {
	t.Helper()
	at := time.Now().Add(-beat)
	l := record.Lock{
		PID: pid, Hostname: host, CreatedAtMS: uint64(at.UnixMilli()), HeartbeatAtMS: uint64(at.UnixMilli()), WriterEpoch: writer,
	}
	if err := os.WriteFile(path, l.Encode(), 0o600); err != nil {
		t.Skip(err) // a file system that takes no such names has none to break
	}
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func deadPID(t *testing.T) uint32 {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "holdfast", "version")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return uint32(cmd.Process.Pid)
}

// Names and nonces from disk are harmless in every plan, exact in JSON, and go through a shell as they are.
func TestOddNamesAreBrokenAndSwept(t *testing.T) {
	root, state, pid := t.TempDir(), t.TempDir(), deadPID(t)
	name, nonce := "a\x1b[2J'\n\xff", "w\x1b[2J"
	host := proc.Local().Self().Host
	path := filepath.Join(root, name+".lock")
	lock(t, path, nonce, pid, host, time.Second)
	lock(t, filepath.Join(root, "."+name+".lock.reclaim"), "reclaim\x1b[2J", pid, host, time.Second)
	harmless := func(args ...string) (code int, out string) {
		t.Helper()
		code, out, complaint := ends(t, state, args...)
		if all := out + complaint; strings.Contains(all, "\x1b") || !utf8.ValidString(all) {
			t.Errorf("%q: %q", args, all)
		}
		return code, out
	}
	code, out := harmless("sweep", root, "--yes")
	if code != 0 || !strings.Contains(out, `removed `) {
		t.Errorf("sweep: exit code %d: %s", code, out)
	}
	code, out = harmless("break", path, "--json")
	var j struct {
		Nonce, Command, Refused string
		Entry                   struct {
			PathB64 string `json:"path_b64"`
		}
	}
	if err := json.Unmarshal([]byte(out), &j); err != nil || code != 2 || j.Nonce != nonce || j.Refused == "" || j.Entry.PathB64 == "" {
		t.Errorf("break --json: exit code %d, %v: %q", code, err, out)
	}
	if bash, err := exec.LookPath("bash"); err == nil { // which has the quotes that the command is in
		cmd := exec.CommandContext(t.Context(), bash, "-c", j.Command)
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
		if out, err := cmd.CombinedOutput(); err != nil || bytes.ContainsRune(out, 0x1b) {
			t.Errorf("%s: %v: %q", j.Command, err, out)
		}
	} else {
		harmless("break", path, "--expect", nonce, "--yes")
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the lock is there: %v", err)
	}
	for _, args := range [][]string{{"log"}, {"log", "--json"}, {"log", path}, {"break", path, "--undo"}, {"wait", path, "--json"}} {
		if code, out := harmless(args...); code != 0 || out == "" {
			t.Errorf("%q: exit code %d: %q", args, code, out)
		}
	}
	if data, err := os.ReadFile(path); err != nil || !bytes.Contains(data, []byte(`\u001b[2J`)) {
		t.Errorf("it is not back: %q, %v", data, err)
	}
}

// Its holder lets go: whoever waits is told soon, and was told once for what it waits.
func TestWaitEndsWhenTheHolderDoes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	root, _ := leases(t)
	h := claim(t, root)
	cmd, line, out := told(t, "wait", "x", "--root", root)
	if !strings.HasPrefix(line, "holdfast: waiting for lease x: Held. pid ") || !strings.Contains(line, " It clears in ") {
		t.Errorf("it says %q", line)
	}
	begin := time.Now()
	if err := h.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := ended(cmd); code != 0 || !strings.HasPrefix(out.String(), "free lease x: ") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if waited := time.Since(begin); waited > 10*time.Second {
		t.Errorf("it took %v", waited)
	}
	if code := ended(h.Cmd); code != 0 {
		t.Errorf("the holder ended with %d", code)
	}
}

// A token is put in its way while somebody waits for a lock: that it does not clear by itself any more is told.
func TestWaitTellsOfWhatBlocks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.lock")
	lock(t, path, "w", 77, "far-host", 20*time.Second)
	cmd := exec.CommandContext(t.Context(), "holdfast", "wait", path)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	if !lines.Scan() || !strings.Contains(lines.Text(), "far-host") {
		t.Fatalf("it says %q", lines.Text())
	}
	lock(t, filepath.Join(dir, ".a.lock.reclaim"), "r", 77, "old-host", time.Second)
	lock(t, path, "w", 77, "far-host", 80*time.Second)
	if !lines.Scan() || !strings.Contains(lines.Text(), "only when somebody acts: blocked by a token of old-host") {
		t.Fatalf("it says %q", lines.Text())
	}
	if err := os.Remove(filepath.Join(dir, ".a.lock.reclaim")); err != nil {
		t.Fatal(err)
	}
	if code := ended(cmd); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A stamp from the future is believed until somebody has watched: then the lease has run out.
func TestObservingTellsWhatAStampHides(t *testing.T) {
	if testing.Short() {
		t.Skip("it watches for a TTL")
	}
	t.Parallel()
	future := func(t *testing.T) (root, file string) {
		t.Helper()
		root, file = leases(t)
		at := time.Now().Add(3 * time.Hour)
		l := record.Lease{
			InstanceID: "x", OwnerBootID: "o", BlockID: "b", PID: 77, Hostname: "far-host", Epoch: 5, ClaimID: "c",
			AcquiredAtMS: at.UnixMilli(), RenewedAtMS: at.UnixMilli(),
		}
		if err := os.WriteFile(file, l.Encode(), 0o600); err != nil {
			t.Fatal(err)
		}
		return root, file
	}
	t.Run("why", func(t *testing.T) {
		t.Parallel()
		root, _ := future(t)
		if code, _, _ := ends(t, root, "why", "x", "--root", root); code != 3 {
			t.Errorf("exit code %d at once", code)
		}
		if code, out, complaint := ends(t, root, "why", "x", "--root", root, "--observe", "17s"); code != 4 || !strings.Contains(out, "EXPIRED") {
			t.Errorf("exit code %d: %s%s", code, out, complaint)
		}
	})
	t.Run("claim", func(t *testing.T) {
		t.Parallel()
		root, _ := future(t)
		if code, out, complaint := ends(t, root, "claim", "x", "--for", "1ms", "--root", root, "--observe", "1m"); code != 0 || !strings.Contains(out, "epoch 6") {
			t.Errorf("exit code %d: %s%s", code, out, complaint)
		}
	})
	t.Run("break", func(t *testing.T) {
		t.Parallel()
		root, file := future(t)
		if code, out, complaint := ends(t, root, "break", "x", "--root", root, "--observe", "17s", "--expect", "c", "--yes"); code != 0 {
			t.Errorf("exit code %d: %s%s", code, out, complaint)
		}
		if _, err := os.Lstat(file); !os.IsNotExist(err) {
			t.Errorf("the lease is there: %v", err)
		}
	})
	t.Run("far lock", func(t *testing.T) { // 16 s of watching are in what was observed
		t.Parallel()
		dir := t.TempDir()
		path := filepath.Join(dir, "a.lock")
		lock(t, path, "w", 77, "far-host", 100*time.Second)
		begin := time.Now()
		if code, out, complaint := ends(t, dir, "break", path, "--observe", "17s", "--expect", "w", "--yes"); code != 0 {
			t.Errorf("exit code %d: %s%s", code, out, complaint)
		}
		if took := time.Since(begin); took < 15*time.Second {
			t.Errorf("it was broken after %v", took)
		}
	})
}

// What is observed changes: there is nothing left to watch.
func TestObservingEndsWithAChange(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.lock")
	lock(t, path, "w", 77, "far-host", time.Second)
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"why", path, "--observe", "1h"}, 3},
		{[]string{"break", path, "--observe", "1h", "--expect", "w", "--force", "--reason", "r"}, 6},
	} {
		lock(t, path, "w", 77, "far-host", time.Second)
		cmd, line, out := told(t, c.args...)
		if !strings.Contains(line, "watching for 1h, or until it changes") {
			t.Errorf("%q says %q", c.args, line)
		}
		lock(t, path, "w2", 77, "far-host", 0)
		if code := ended(cmd); code != c.code {
			t.Errorf("%q: exit code %d: %s", c.args, code, out)
		}
	}
	cmd, _, _ := told(t, "why", path, "--observe", "1h", "--timeout", "100ms")
	if code := ended(cmd); code != 124 {
		t.Errorf("exit code %d", code)
	}
}

// Several people break the same lock at once: one does, the others are told that it is not there any more, or that somebody
// is at it.
func TestOneOfManyBreaksIt(t *testing.T) {
	dir, state, pid := t.TempDir(), t.TempDir(), deadPID(t)
	path := filepath.Join(dir, "a.lock")
	for range 5 {
		lock(t, path, "w", pid, proc.Local().Self().Host, time.Second)
		codes := make(chan int)
		for range 4 {
			go func() {
				cmd := exec.CommandContext(t.Context(), "holdfast", "break", path, "--expect", "w", "--yes")
				cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+state)
				codes <- codeOf(cmd)
			}()
		}
		done := 0
		for range 4 {
			switch code := <-codes; code {
			case 0:
				done++
			case 6, 8:
			default:
				t.Errorf("exit code %d", code)
			}
		}
		if _, err := os.Lstat(path); done != 1 || !os.IsNotExist(err) {
			t.Errorf("%d broke it: %v", done, err)
		}
	}
}

// Whoever watches before a break is interrupted: the lock stays, and so does nothing of ours.
func TestBreakEndsBySignal(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a.lock")
	lock(t, path, "w", 77, "far-host", 100*time.Second)
	cmd, line, _ := told(t, "break", path, "--expect", "w", "--yes")
	if !strings.Contains(line, "watched first") {
		t.Errorf("it says %q", line)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := ended(cmd); code != 128+15 {
		t.Errorf("exit code %d", code)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "a.lock" {
		t.Errorf("there are %v, %v", left, err)
	}
}

// A plan that cannot be told is not carried out.
func TestNothingIsBrokenWhosePlanIsNotTold(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.lock")
	host := proc.Local().Self().Host
	lock(t, path, "w", deadPID(t), host, time.Second)
	token := filepath.Join(dir, ".b.lock.reclaim")
	lock(t, token, "r", deadPID(t), host, time.Second)
	for _, args := range [][]string{{"break", path, "--expect", "w", "--yes"}, {"sweep", dir, "--yes"}} {
		var complaint bytes.Buffer
		env := cli.Env{Stdin: os.Stdin, Stdout: full{}, Stderr: &complaint, Getenv: func(string) string { return "" }, Home: dir}
		if code := cli.Main(context.Background(), args, env); code != 1 || !strings.Contains(complaint.String(), "standard output") {
			t.Errorf("%q: exit code %d: %s", args, code, &complaint)
		}
	}
	for _, file := range []string{path, token} {
		if _, err := os.Lstat(file); err != nil {
			t.Error(err)
		}
	}
}

// full is a disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }
