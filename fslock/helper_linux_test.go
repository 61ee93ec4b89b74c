package fslock

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childEnv makes the test binary a helper process: what it names is done, until standard input ends.
const childEnv = "FSLOCK_TEST_CHILD"

func TestMain(m *testing.M) {
	switch what := os.Getenv(childEnv); what {
	case "":
		os.Exit(m.Run())
	default:
		if err := helper(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}

// start runs the test binary as a helper and returns it with the first line that it prints.
func start(t *testing.T, what string) (*exec.Cmd, string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal("the helper says nothing: ", err)
	}
	return cmd, line
}

// eventually waits for an outcome.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

func helper(what string) error {
	switch what {
	case "wait":
		return nil
	case "thread": // prints the id of a thread that is not the first
		tids := make(chan int)
		for range 2 {
			go func() {
				runtime.LockOSThread()
				tids <- unix.Gettid()
				_, _ = io.Copy(io.Discard, os.Stdin)
			}()
		}
		tid := <-tids
		if other := <-tids; tid == os.Getpid() {
			tid = other
		}
		fmt.Println(tid)
		select {}
	default:
		if order, ok := strings.CutPrefix(what, "remove\n"); ok {
			return removeHelper(order)
		}
		if order, ok := strings.CutPrefix(what, "contend\n"); ok {
			return contend(order)
		}
		return fmt.Errorf("unknown helper %q", what)
	}
}
