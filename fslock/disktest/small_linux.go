package disktest

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// smallEnv makes a test its own child: the directory where its small disk belongs.
const smallEnv = "HOLDFAST_TEST_DISK"

// Small runs a test once more, as a process in a mount namespace of its own, with a tmpfs of 64 KiB: nobody else sees
// that mount, and it goes with the process. A machine that cannot do that skips the test, or fails it with
// HOLDFAST_STRICT=1.
func Small(t *testing.T, test func(t *testing.T, disk string)) {
	t.Helper()
	if disk := os.Getenv(smallEnv); disk != "" {
		if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
			t.Fatal(err)
		}
		test(t, disk)
		return
	}
	disk := t.TempDir()
	wrap := []string{"unshare", "--mount"}
	if os.Getuid() != 0 {
		wrap = append(wrap, "--map-root-user")
	}
	trial := slices.Concat(wrap, []string{"mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk})
	if out, err := exec.CommandContext(t.Context(), trial[0], trial[1:]...).CombinedOutput(); err != nil {
		skip := t.Skipf
		if os.Getenv("HOLDFAST_STRICT") == "1" {
			skip = t.Fatalf
		}
		skip("%s: %v: %s", strings.Join(trial, " "), err, out)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := slices.Concat(wrap, []string{exe, "-test.v", "-test.run=^" + t.Name() + "$"})
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), smallEnv+"="+disk)
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("%v: %s", err, out)
	}
	if left, err := os.ReadDir(disk); err != nil || len(left) != 0 {
		t.Errorf("the disk was not its own: %v (%v)", left, err)
	}
}

// Fill takes all the space that there is, and returns how to give it back.
func Fill(t *testing.T, disk string) (empty func()) {
	t.Helper()
	path := filepath.Join(disk, "filler")
	f, err := os.Create(path)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
