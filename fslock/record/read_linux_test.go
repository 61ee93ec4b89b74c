package record

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// asNobody runs call on a thread that may read only what everybody may. An ordinary user is that already.
func asNobody(t *testing.T, call func()) {
	t.Helper()
	if os.Getuid() != 0 {
		call()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			t.Errorf("setfsuid: %v", err)
			return
		}
		call()
	}()
	<-done
}

func TestFileOfSomebodyElseIsDeniedWithOwnerAndMode(t *testing.T) {
	dir := t.TempDir()
	for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := write(t, filepath.Join(dir, "x.lock"), []byte(beat1))
	if err := os.Chmod(path, 0o200); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() {
		_, err := Read(path)
		e := isError(t, err, Denied, "mode 0200")
		if want := fmt.Sprintf("owned by uid %d, mode 0200", os.Getuid()); e.Detail != want || e.Op != "open" {
			t.Errorf("got %v, want %s", e, want)
		}
	})
	if err := os.Chmod(dir, 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(dir, 0o700) }()
	asNobody(t, func() {
		_, err := Read(path)
		isError(t, err, Denied, "permission denied")
	})
}
