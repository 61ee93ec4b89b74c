package lease

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// How long the critical section is waited for where the context has no deadline.
const (
	enterLimit   = 5 * time.Second
	releaseLimit = 2 * time.Second
)

// sectionMode is what the flock file is created with, less the umask. The directory bit means nothing to open, but
// no regular file has it: without it gofrs would open a file anew, by path, after an I/O error.
const sectionMode fs.FileMode = 0o666 | fs.ModeDir

// enter waits for the critical section of id and returns how to leave it. It ends with ctx, or after limit where
// ctx has no deadline, with a *BusyError that names who sits inside. At least one attempt is made.
func (s *Store) enter(ctx context.Context, op, id string, limit time.Duration) (leave func(), err error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	path := s.path(id, sectionSuffix)
	began := time.Now()
	flags := os.O_CREATE | os.O_RDWR | openFlags
	var denied error
	for attempt := 0; ; attempt++ {
		lock, err := s.tryEnter(path, flags)
		switch {
		case err == nil && lock != nil:
			return func() { _ = lock.Close() }, nil
		case errors.Is(err, fs.ErrPermission) && denied == nil:
			// A flock file of another user can still be locked by whoever may read it.
			denied, flags = err, os.O_RDONLY|openFlags
			continue
		case errors.Is(err, fs.ErrNotExist) && denied != nil:
			// What was denied is making the file: that it is missing says nothing to a person.
			return nil, s.sectionError(op, id, path, denied)
		case err != nil:
			return nil, s.sectionError(op, id, path, err)
		}
		pause := min(10*time.Millisecond, 200*time.Microsecond<<min(attempt, 6))
		pause = pause/2 + rand.N(pause)
		select {
		case <-ctx.Done():
			return nil, s.busy(op, id, path, time.Since(began), ctx.Err())
		case <-time.After(pause):
		}
	}
}

// tryEnter returns nil and no error when somebody else is inside, or the flock file was replaced meanwhile.
func (s *Store) tryEnter(path string, flags int) (*flock.Flock, error) {
	// Opened without a look, a FIFO in its place would be taken for a flock file.
	switch st, err := os.Lstat(path); {
	case err == nil:
		if e := irregular(path, st.Mode()); e != nil {
			return nil, e
		}
	case errors.Is(err, fs.ErrNotExist) && flags&os.O_CREATE != 0:
		_ = record.CreateEmpty(path, sectionMode.Perm()) // the lock tells what stands against it
	}
	lock := flock.New(path, flock.SetFlag(flags), flock.SetPermissions(sectionMode))
	got, err := lock.TryLock()
	if errors.Is(err, syscall.EINTR) {
		return nil, nil
	}
	if err != nil || !got {
		return nil, err
	}
	if err := s.at("entered"); err != nil {
		_ = lock.Close()
		return nil, err
	}
	held, err := lock.Stat()
	named, lerr := os.Lstat(path)
	if err == nil && lerr == nil && named.Mode().IsRegular() && os.SameFile(held, named) {
		return lock, nil
	}
	// Whoever comes next would lock the file that the path names now: two would be inside.
	_ = lock.Close()
	return nil, err
}

func (s *Store) sectionError(op, id, path string, err error) error {
	if e, ok := errors.AsType[*record.Error](err); ok {
		return &ConflictError{Op: op, ID: id, Path: path, Err: ErrUnreadable, Verdict: verdict.Verdict{
			State: verdict.Unreadable, Cause: string(e.Problem), Sentence: "Its flock file is " + e.Detail + ".",
		}}
	}
	return &IOError{Op: op, ID: id, Path: path, Err: err}
}

func (s *Store) busy(op, id, path string, waited time.Duration, err error) error {
	e := &BusyError{Op: op, ID: id, Path: path, Waited: waited, Err: err}
	if st, lerr := os.Lstat(path); lerr == nil {
		if dev, ino, ok := record.Inode(st); ok {
			e.Holders, e.Complete = s.table().FlockHolders(dev, ino)
		}
	}
	return e
}
