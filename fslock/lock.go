package fslock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

const (
	beatInterval = 5 * time.Second
	staleAfter   = 70 * time.Second // less than the 75 s after which another machine's contender may take the lock
	beatMargin   = 8                // bytes of padding: the figures of later stamps may be longer
	guardLimit   = time.Second      // how long a guard is waited for
	joinLimit    = 2 * time.Second  // how long Release waits for a heartbeat that the system does not answer
)

// Lock is a lock that was acquired. It beats every 5 s by itself until Release. Its methods may be called at the same
// time.
type Lock struct {
	locker *Locker
	path   string
	local  bool // on a file system of the allow-list
	size   int  // of the record, in bytes, always
	lost   chan struct{}
	left   atomic.Bool   // Release has given up waiting: the beat that keeps the turn ends the lock itself
	turn   chan struct{} // full while somebody works on what follows: a mutex that can be waited for in time

	rec      record.Lock
	data     []byte // as it was written last
	file     *os.File
	stat     fs.FileInfo   // of file
	named    fs.FileInfo   // of what the path named last
	good     time.Duration // boot-time clock before the last good beat
	synced   bool          // forced to the disk since it was acquired
	failures int           // beats in a row
	handed   bool          // out to a caller: a loss is worth telling
	ended    bool          // no beat is wanted any more
	released bool
	timer    *time.Timer // of the next beat
}

// Path returns the absolute path of the lock file.
func (l *Lock) Path() string { return l.path }

// WriterEpoch returns the fencing nonce of the hold.
func (l *Lock) WriterEpoch() string { return l.rec.WriterEpoch }

// Lost returns a channel that is closed when the lock is known to be lost: its file is gone or another's. The heartbeat
// and Verify find out, whichever is first.
func (l *Lock) Lost() <-chan struct{} { return l.lost }

// newRecord is a record of this process, without its stamps.
func (l *Locker) newRecord(self proc.Self, nonce string) record.Lock {
	r := record.Lock{
		PID: uint32(max(0, self.PID)), Hostname: cmp.Or(self.Host, os.Getenv("HOSTNAME"), "unknown-host"), WriterEpoch: nonce,
		Ours: record.Ours{PIDNS: self.PIDNS, PidfdIno: self.PidfdIno, TimeNS: self.TimeNS},
	}
	if self.StartTicks != 0 {
		r.ProcessStartTime = &self.StartTicks
	}
	if self.BootID != "" {
		r.BootID = &self.BootID
	}
	return r
}

// newNonce is a writer epoch that nobody else makes.
func newNonce(pid int) string {
	return fmt.Sprintf("%d-%d-%08x", pid, time.Now().UnixNano(), rand.Uint32())
}

// stamp sets the heartbeat to now, and returns the boot-time clock of that moment.
func (l *Lock) stamp() time.Duration {
	boot := l.locker.bootClock()
	l.rec.HeartbeatAtMS = uint64(max(0, time.Now().UnixMilli()))
	l.rec.Ours.BeatBootMS = max(1, boot.Milliseconds())
	return boot
}

// begin starts the heartbeat. The caller has the turn until the lock is published, or its heartbeat ended: so it runs
// before anybody can see the lock, and does nothing until then.
func (l *Lock) begin() {
	l.turn <- struct{}{}
	l.timer = time.AfterFunc(beatInterval, l.pulse)
}

func (l *Lock) leave() { <-l.turn }

// pulse is one beat when it is due.
func (l *Lock) pulse() {
	l.turn <- struct{}{}
	defer l.leave()
	if l.ended || isClosed(l.lost) {
		return
	}
	log := l.locker.log().With(slog.String("path", l.path))
	err := l.beat("beat")
	switch {
	case l.left.Load():
		_ = l.told(l.end(context.Background(), guardLimit))
		return
	case errors.Is(err, ErrLost):
		return
	case err == nil && l.failures > 0:
		log.Info("heartbeat recovered", slog.Int("failures", l.failures))
		fallthrough
	case err == nil:
		l.failures = 0
	default:
		l.failures++
		switch {
		case l.failures < 3:
			log.Warn("heartbeat failed", slog.Int("failures", l.failures), slog.Any("error", err))
		case l.failures == 3:
			log.Error("heartbeat keeps failing", slog.Int("failures", l.failures), slog.Any("error", err))
		}
	}
	l.timer.Reset(beatInterval)
}

// beat writes the record anew, with fresh stamps and the same length, into the file that it holds open. It can reach no
// other owner's file: one that takes the path after the look is another inode. The caller has the turn.
func (l *Lock) beat(op string) error {
	if err := l.own(op); err != nil {
		return err
	}
	if err := l.locker.at("beating", l.path); err != nil {
		return &IOError{Op: op, Path: l.path, Err: err}
	}
	stamp := l.stamp()
	data := l.rec.EncodePadded(l.size)
	_, err := l.file.WriteAt(data, 0)
	if err == nil && l.named.Size() != int64(l.size) {
		// Whatever somebody added behind it would make it no record.
		err = l.file.Truncate(int64(l.size))
	}
	if err == nil && (!l.synced || !l.local) {
		// Elsewhere others see it only then. Here once, so that a power cut does not leave an empty file.
		err = syncData(l.file)
	}
	if err != nil {
		return &IOError{Op: op, Path: l.path, Err: err}
	}
	l.data, l.good, l.synced = data, stamp, true
	return nil
}

// own checks that the path names the file that is held open. A copy of it that carries our nonce, as a restore makes
// it, is opened in its place. The error matches ErrLost when the file is gone or another's, ErrUnreadable when that
// cannot be told.
func (l *Lock) own(op string) error {
	named, err := os.Lstat(l.path)
	switch {
	case err == nil && os.SameFile(named, l.stat):
		l.named = named
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return l.gone(op, nil)
	case err != nil:
		return &IOError{Op: op, Path: l.path, Err: err}
	}
	seen, rec, err := record.ReadLock(l.path)
	e, unreadable := errors.AsType[*record.Error](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return l.gone(op, nil)
	case unreadable && (e.Problem == record.Malformed || e.Problem == record.Denied):
		return &ConflictError{Op: op, Path: l.path, Err: ErrUnreadable, Verdict: verdict.Verdict{
			State: verdict.Unreadable, Cause: string(e.Problem), Sentence: "Another file is in its place: " + e.Detail + ".",
		}}
	case unreadable:
		return l.gone(op, nil)
	case err != nil:
		return &IOError{Op: op, Path: l.path, Err: err}
	case !rec.SameOwner(&l.rec):
		return l.gone(op, &rec)
	}
	return l.reopen(op, seen.Stat)
}

func (l *Lock) reopen(op string, want record.Stat) error {
	f, err := record.OpenWrite(l.path)
	if err != nil {
		return &IOError{Op: op, Path: l.path, Err: err}
	}
	st, err := f.Stat()
	if dev, ino, ok := inodeOf(st); err == nil && ok && (dev != want.Dev || ino != want.Ino) {
		err = errors.New("it is being replaced")
	}
	if err != nil {
		_ = f.Close()
		return &IOError{Op: op, Path: l.path, Err: err}
	}
	_ = l.file.Close()
	l.file, l.stat, l.named, l.synced, l.data = f, st, st, false, nil
	return nil
}

func inodeOf(st fs.FileInfo) (dev, ino uint64, ok bool) {
	if st == nil {
		return 0, 0, false
	}
	return record.Inode(st)
}

// gone tells the loss. r is whose file it is now; nil: nobody's.
func (l *Lock) gone(op string, r *record.Lock) error {
	e := &ConflictError{Op: op, Path: l.path, Err: ErrLost}
	if r == nil {
		e.Verdict.Sentence = "Its file is gone."
	} else {
		e.Holder = (&verdict.LockFacts{Record: r}).Holder()
		e.Verdict.Sentence = fmt.Sprintf("It is that of pid %d on %s now.", r.PID, r.Hostname)
	}
	if !isClosed(l.lost) {
		close(l.lost)
		if l.handed {
			l.locker.log().Error("lost lock", slog.String("path", l.path), slog.Any("error", e))
		}
	}
	return e
}

// Verify reports whether the lock is this handle's at this moment: nil when path, inode and nonce are its own and the
// last good beat is under 70 s old by the boot-time clock, which runs through suspend. The error matches ErrLost, for
// good; ErrStale, which a later good beat heals, as it does a file of its own in which something else stands;
// ErrUnreadable when another file is in its place that cannot be read; or is the system's. It reads, and takes no lock.
func (l *Lock) Verify() error {
	const op = "verify"
	l.turn <- struct{}{}
	defer l.leave()
	return l.verify(op)
}

func (l *Lock) verify(op string) error {
	if l.released || isClosed(l.lost) {
		return &ConflictError{Op: op, Path: l.path, Err: ErrLost}
	}
	if err := l.own(op); err != nil {
		return err
	}
	if age := l.locker.bootClock() - l.good; age >= staleAfter {
		return &ConflictError{Op: op, Path: l.path, Err: ErrStale, Verdict: verdict.Verdict{
			Sentence: fmt.Sprintf("Its last good heartbeat was %v ago.", age.Round(time.Second)),
		}}
	}
	buf := make([]byte, min(l.named.Size(), record.MaxSize)) // as own has just seen it
	n, err := l.file.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return &IOError{Op: op, Path: l.path, Err: err}
	}
	if bytes.Equal(buf[:n], l.data) {
		return nil
	}
	if rec, err := record.DecodeLock(l.path, buf[:n]); err == nil && rec.SameOwner(&l.rec) {
		return nil
	}
	return &ConflictError{Op: op, Path: l.path, Err: ErrStale, Verdict: verdict.Verdict{
		Sentence: "Something else stands in its file; the next heartbeat writes it anew.",
	}}
}

// Release gives the lock up: nil also when it was released or lost before, and then nothing is touched. It ends the
// heartbeat first, and waits for it 2 s at most; then it removes the file under the directory's guard, or after 1 s
// without. The error is the system's, or matches ErrUnreadable; the lock then stays, with no heartbeat, until this
// process ends or Release succeeds. That a heartbeat does not return in time is an error, too: when it does, it gives
// the lock up itself.
func (l *Lock) Release() error { return l.told(l.release(context.Background(), guardLimit)) }

func (l *Lock) told(err error) error {
	if err != nil {
		l.locker.log().Warn(MsgReleaseFailed, slog.String("path", l.path), slog.Any("error", err))
	}
	return err
}

const opRelease = "release"

func (l *Lock) release(ctx context.Context, wait time.Duration) error {
	join := time.NewTimer(joinLimit)
	defer join.Stop()
	select {
	case l.turn <- struct{}{}:
		defer l.leave()
		return l.end(ctx, wait)
	case <-join.C:
		l.left.Store(true)
		return &IOError{Op: opRelease, Path: l.path, Err: errors.New("a heartbeat does not return")}
	}
}

// end ends the heartbeat and removes the file, under the guard if that is to be had within wait. The caller has the
// turn.
func (l *Lock) end(ctx context.Context, wait time.Duration) error {
	const op = opRelease
	l.timer.Stop() // one that is on its way finds that no beat is wanted
	if l.released || isClosed(l.lost) {
		return l.close()
	}
	l.ended = true
	if guard, err := l.locker.enterGuard(ctx, op, l.path, wait); err == nil {
		defer guard.leave()
	}
	switch err := l.own(op); {
	case errors.Is(err, ErrLost):
		return l.close()
	case err != nil:
		return err
	}
	if err := l.locker.at("releasing", l.path); err != nil {
		return &IOError{Op: op, Path: l.path, Err: err}
	}
	if err := unlink(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &IOError{Op: op, Path: l.path, Err: err}
	}
	l.locker.log().Debug("released lock", slog.String("path", l.path))
	return l.close()
}

func (l *Lock) close() error {
	l.ended = true
	if !l.released {
		l.released = true
		_ = l.file.Close()
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
