package audit

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// enterLimit is how long other writers are waited for.
const enterLimit = 2 * time.Second

// guardMode is what the guard is created with, less the umask. The directory bit means nothing to open, but no regular
// file has it: without it gofrs would open a file anew, by path, after an I/O error.
const guardMode = 0o600 | fs.ModeDir

// enter waits until no other process appends to the log. The guard is a file of its own, empty, that stays: where
// locks are mandatory, one on the log itself would keep our own write out.
func enter(log string) (leave func(), err error) {
	path := filepath.Join(filepath.Dir(log), "."+filepath.Base(log)+".guard")
	for end := time.Now().Add(enterLimit); ; {
		lock, err := tryEnter(path)
		if err != nil {
			return nil, err
		}
		if lock != nil {
			return func() { _ = lock.Close() }, nil
		}
		if time.Now().After(end) {
			return nil, &fs.PathError{Op: "lock", Path: path, Err: ErrBusy}
		}
		time.Sleep(time.Millisecond + rand.N(4*time.Millisecond))
	}
}

// tryEnter returns nil and no error when somebody else has the guard.
func tryEnter(path string) (*flock.Flock, error) {
	// Opened without a look, a FIFO in its place would be taken for a file.
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() {
		return nil, irregular(path, st)
	}
	lock := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR|openFlags), flock.SetPermissions(guardMode))
	got, err := lock.TryLock()
	if errors.Is(err, syscall.EINTR) {
		return nil, nil
	}
	if err != nil || !got {
		return nil, err
	}
	st, err := lock.Stat()
	if err == nil {
		err = samePlace(path, st)
	}
	if err != nil {
		// Whoever comes next would lock what the name means now: two would write.
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}
