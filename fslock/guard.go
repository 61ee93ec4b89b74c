package fslock

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/gofrs/flock"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

const (
	guardSuffix = ".guard"
	maxName     = 255 // bytes in a file name
	atOnceTries = 100 // of an attempt that must not sleep: about a millisecond, in which a removal comes to its end
)

// The modes have a bit that their kind of file never has: without it gofrs would open the guard anew, by path, after an
// I/O error. In a regular file's it means nothing to open; a directory is not created.
const (
	guardFileMode = 0o666 | fs.ModeDir
	guardDirMode  = fs.ModeSocket
)

// guard is the kernel lock under which one process at a time removes the locks and tokens of a directory. It goes with
// its holder, however that ends, so nobody ever has to clear it.
type guard struct {
	lock *flock.Flock
	id   *record.Guard // nil: the system has no inode numbers
}

// place is what is locked as the guard.
type place struct {
	path  string
	dir   bool
	flags int
	mode  fs.FileMode
}

// guardOf is the guard of the lock at path. The type of the file system decides, never an error: two processes that
// chose differently would not keep each other out.
func (l *Locker) guardOf(path string) place {
	// The directory stays as it is written: behind a link, ".." is not what cleaning makes of it.
	dir, name := filepath.Split(path)
	if l.isLocal(cmp.Or(dir, ".")) {
		dir = cmp.Or(strings.TrimRight(dir, string(filepath.Separator)), dir, ".")
		return place{path: dir, dir: true, flags: os.O_RDONLY | guardDirFlags, mode: guardDirMode}
	}
	return place{path: dir + guardName(name), flags: os.O_CREATE | os.O_RDWR | guardFileFlags, mode: guardFileMode}
}

// guardName is the name of a lock's guard where that is a file. A name that is too long is cut: locks that differ only
// at their ends share one, and wait for each other.
func guardName(lockName string) string {
	keep := maxName - len(".") - len(guardSuffix)
	if len(lockName) > keep {
		for cut := keep; cut > keep-utf8.UTFMax; cut-- {
			if utf8.RuneStart(lockName[cut]) {
				keep = cut // some file systems take only whole letters
				break
			}
		}
		lockName = lockName[:keep]
	}
	return "." + lockName + guardSuffix
}

// enterGuard waits for the guard of the lock at path, at most for wait and as long as ctx lets it. At least one attempt
// is made; with a wait of 0 a few, without sleeping. Errors: a *BusyError that names who has it, a *ConflictError that
// matches ErrUnreadable where something that is no file is in its place, or an *IOError.
func (l *Locker) enterGuard(ctx context.Context, op, path string, wait time.Duration) (*guard, error) {
	at := l.guardOf(path)
	began := time.Now()
	var denied error
	for attempt := 0; ; attempt++ {
		lock, id, err := at.try()
		switch {
		case lock != nil:
			return &guard{lock: lock, id: id}, nil
		case errors.Is(err, fs.ErrPermission) && !at.dir && denied == nil:
			// A guard that another user made can still be locked by whoever may read it.
			denied, at.flags = err, os.O_RDONLY|guardFileFlags
			continue
		case errors.Is(err, fs.ErrNotExist) && denied != nil:
			// What was denied is making the file: that it is missing says nothing to a person.
			return nil, guardError(op, path, denied)
		case err != nil:
			return nil, guardError(op, path, err)
		}
		waited := time.Since(began)
		if wait <= 0 {
			if attempt >= atOnceTries || ctx.Err() != nil {
				return nil, l.busy(op, at, waited)
			}
			runtime.Gosched()
			continue
		}
		if waited >= wait {
			return nil, l.busy(op, at, waited)
		}
		pause := min(10*time.Millisecond, 200*time.Microsecond<<min(attempt, 6))
		select {
		case <-ctx.Done():
			return nil, l.busy(op, at, waited)
		case <-time.After(min(wait-waited, pause/2+rand.N(pause))):
		}
	}
}

func (g *guard) leave() { _ = g.lock.Close() }

// try returns nothing and no error when somebody else has the guard, or it was replaced meanwhile.
func (p place) try() (*flock.Flock, *record.Guard, error) {
	if !p.dir {
		// Opened without a look, a FIFO in its place would be taken for a guard.
		switch st, err := os.Lstat(p.path); {
		case err == nil && !st.Mode().IsRegular():
			if _, err := record.Read(p.path); err != nil {
				return nil, nil, err
			}
		case errors.Is(err, fs.ErrNotExist) && p.flags&os.O_CREATE != 0:
			_ = record.CreateEmpty(p.path, p.mode.Perm()) // the lock tells what stands against it
		}
	}
	lock := flock.New(p.path, flock.SetFlag(p.flags), flock.SetPermissions(p.mode))
	got, err := lock.TryLock()
	if errors.Is(err, syscall.EINTR) {
		return nil, nil, nil
	}
	if err != nil || !got {
		return nil, nil, err
	}
	held, err := lock.Stat()
	if err == nil && p.names(held) {
		var id *record.Guard
		if dev, ino, ok := record.Inode(held); ok {
			id = &record.Guard{Dev: dev, Ino: ino}
		}
		return lock, id, nil
	}
	// Whoever comes next would lock what the name means now: two would remove.
	_ = lock.Close()
	return nil, nil, err
}

// names reports whether the guard's path still names that file.
func (p place) names(held fs.FileInfo) bool {
	named, err := p.stat()
	return err == nil && named.IsDir() == p.dir && os.SameFile(held, named)
}

// stat follows a link to a directory, as every path through it does, and none to a file.
func (p place) stat() (fs.FileInfo, error) {
	if p.dir {
		return os.Stat(p.path)
	}
	return os.Lstat(p.path)
}

func guardError(op, path string, err error) error {
	if e, ok := errors.AsType[*record.Error](err); ok {
		return &ConflictError{Op: op, Path: e.Path, Err: ErrUnreadable, Verdict: verdict.Verdict{
			State: verdict.Unreadable, Cause: string(e.Problem), Sentence: "The guard of its removal is " + e.Detail + ".",
		}}
	}
	return &IOError{Op: op, Path: path, Err: err}
}

func (l *Locker) busy(op string, at place, waited time.Duration) error {
	e := &BusyError{Op: op, Path: at.path, Waited: waited}
	if st, err := at.stat(); err == nil {
		if dev, ino, ok := record.Inode(st); ok {
			e.Holders, e.Complete = l.table().FlockHolders(dev, ino)
		}
	}
	return e
}
