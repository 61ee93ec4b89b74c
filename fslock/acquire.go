package fslock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

const (
	pollInterval = 100 * time.Millisecond
	watchFor     = 16 * time.Second // three beats: so long a holder that cannot be judged must stand still before it is taken over
	backOffMin   = 250 * time.Millisecond
	backOffMax   = 5 * time.Second
	freshFor     = time.Second // a stamp that is older is renewed before the lock is handed out
	maxTransient = 50          // refusals in a row by the system that pass, on Windows
)

// Acquire takes the lock at path, and waits for it until ctx is done. At least one attempt is made. It is taken when
// nobody holds it, when its holder is proven dead, when a holder that cannot be judged from here has not beaten for
// 75 s and was watched unchanged for 16 s more, or when it is torn and nobody has written to it for 15 s; never from a
// holder that is proven to live, however late. The directory must exist.
//
// A contender that waits shows itself by a temp file beside the lock. It looks every 100 ms, and when the directory
// changes. Errors: the context's, which also matches ErrHeld or ErrBlocked and is a *ConflictError that says who has
// it, or wraps the *BusyError of a guard; at once ErrReadOnly; ErrUnreadable for what is no regular file, is too large,
// or may not be read; and as an *IOError that names path and call fs.ErrInvalid for the name of a token, of a temp or
// of a lease's flock file, and what the system says: no directory, no permission, a read-only file system, a name that
// is too long, a full disk.
func (l *Locker) Acquire(ctx context.Context, path string) (*Lock, error) {
	a, err := l.newAttempt(path)
	if err != nil {
		return nil, err
	}
	defer a.close()
	a.patient = true
	return a.wait(ctx)
}

// TryAcquire takes the lock at path if nobody holds it, or if it can be taken over at once. It makes one attempt and
// never waits: a holder that must be watched first is counted from earlier looks of the same Locker, at most 2 s apart,
// and the *ConflictError says how long is left. Errors are those of Acquire, ErrHeld and ErrBlocked without a
// context's.
func (l *Locker) TryAcquire(path string) (*Lock, error) {
	a, err := l.newAttempt(path)
	if err != nil {
		return nil, err
	}
	defer a.close()
	lock, err := a.try(context.Background(), 0)
	if errors.Is(err, ErrChanged) {
		// Somebody was quicker: who that is, is told.
		lock, err = a.try(context.Background(), 0)
	}
	return lock, outrun(err)
}

// attempt is one contender for one lock.
type attempt struct {
	locker *Locker
	path   string
	look   *look
	rec    record.Lock
	size   int
	temp   *record.Temp // nil: not announced
	data   []byte       // in temp
	isLock bool         // no lease's flock file

	patient   bool // it waits: others may go first
	turn      turn
	backOff   time.Duration // before the next attempt at a dead lock that a token blocks; 0: none
	transient int
	toldLate  bool
	toldLong  bool
	unwatch   func()
	changed   <-chan struct{}
}

const opAcquire = "acquire"

func (l *Locker) newAttempt(path string) (*attempt, error) {
	if l.ReadOnly {
		return nil, &IOError{Op: opAcquire, Path: path, Err: ErrReadOnly}
	}
	if path == "" {
		return nil, &IOError{Op: opAcquire, Path: path, Err: &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}}
	}
	if !filepath.IsAbs(path) {
		// A program may change its directory while it holds the lock. Not cleaned: behind a link, ".." is another place.
		dir, err := os.Getwd()
		if err != nil {
			return nil, &IOError{Op: opAcquire, Path: path, Err: err}
		}
		path = dir + string(filepath.Separator) + path
	}
	if what := noLock(path); what != "" {
		return nil, &IOError{Op: opAcquire, Path: path, Err: fmt.Errorf("%w: %s", fs.ErrInvalid, what)}
	}
	k := l.look(l.table())
	k.brief = true
	return &attempt{locker: l, path: path, look: k}, nil
}

// noLock says what a file of that name is that can be no lock; "" if it can be one.
func noLock(path string) string {
	_, name := filepath.Split(path)
	if lock, ok := record.ParseToken(name); ok {
		return "it is the name of a reclaim token, of the lock " + lock
	}
	if lock, _, ok := record.ParseTemp(name); ok {
		return "it is the name of a temp file, of the lock " + lock
	}
	return ""
}

// flockFile refuses, once, the name of a lease's flock file. AgentMux never removes it, and is not alone in its
// critical section if somebody else does.
func (a *attempt) flockFile() error {
	id, ok := strings.CutSuffix(a.path, ".lock")
	if !ok || a.isLock {
		return nil
	}
	for _, beside := range [...]string{".lease.json", ".epoch"} {
		if _, err := os.Lstat(id + beside); err == nil {
			return &IOError{Op: opAcquire, Path: a.path, Err: fmt.Errorf("%w: it is the name of a lease's flock file", fs.ErrInvalid)}
		}
	}
	a.isLock = true
	return nil
}

// close takes the announcement back.
func (a *attempt) close() {
	if a.unwatch != nil {
		a.unwatch()
	}
	if a.temp != nil {
		a.temp.Close()
	}
}

func (a *attempt) wait(ctx context.Context) (*Lock, error) {
	quick := 0 // attempts in a row that somebody else was quicker at
	for {
		lock, err := a.try(ctx, guardLimit)
		if err == nil {
			return lock, nil
		}
		if err := a.mayWait(err); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, a.ended(ctx, err)
		}
		if errors.Is(err, ErrChanged) && quick < 3 {
			quick++
			continue
		}
		quick = 0
		first := a.changed == nil
		if err := a.announce(); err != nil {
			return nil, err
		}
		if first {
			continue // what changed before the directory was watched is seen now
		}
		pause := pollInterval/2 + rand.N(pollInterval)
		if a.backOff > 0 {
			pause = a.backOff
		}
		if first := time.Until(a.turn.until); first > 0 {
			pause = min(pause, first)
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-a.changed:
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil && !time.Now().Before(a.turn.until) {
			return nil, a.ended(ctx, err)
		}
		// Whoever has let others go first makes a last attempt at the end: nobody may have come.
	}
}

// mayWait returns the error unless waiting can mend it.
func (a *attempt) mayWait(err error) error {
	switch {
	case errors.Is(err, ErrChanged):
		a.backOff, a.transient = 0, 0
		return nil
	case errors.Is(err, ErrHeld), errors.Is(err, ErrBlocked):
		a.transient = 0
		return nil
	case full(err) && a.temp != nil:
		return nil // it needs no more room than others will leave
	case transient(err) && a.transient < maxTransient:
		a.transient++
		return nil
	}
	return err
}

// ended is the error of a wait that is over.
func (a *attempt) ended(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*ConflictError](outrun(err)); ok {
		e.Ended = ctx.Err()
		return e
	}
	return &IOError{Op: opAcquire, Path: a.path, Err: fmt.Errorf("%w: %w", ctx.Err(), err)}
}

// outrun says of a lock that somebody else was quicker at that it is held: that is what a caller asks.
func outrun(err error) error {
	if e, ok := errors.AsType[*ConflictError](err); ok && errors.Is(e.Err, ErrChanged) {
		e.Err = ErrHeld
	}
	return err
}

// try makes one attempt, and one take-over where that is due. ErrChanged: somebody else was quicker, and it should
// be tried again at once.
func (a *attempt) try(ctx context.Context, wait time.Duration) (*Lock, error) {
	info := a.look.peek(a.path)
	f, v := info.Facts, &info.Verdict
	switch {
	case v.State == verdict.Free && a.patient && a.yields(ctx):
		info.Verdict.Sentence = "Another contender has waited and goes first."
		return nil, a.conflict(info, ErrHeld)
	case v.State == verdict.Free:
		return a.publish(ctx, wait)
	}
	a.turn.sawHeld(f.Record)
	switch {
	case v.State == verdict.Unreadable && f.Problem.Problem == record.Denied:
		return nil, a.denied(f.Problem)
	case v.State == verdict.Unreadable && f.Problem.Problem != record.Malformed:
		return nil, a.conflict(info, ErrUnreadable)
	case v.Claimable.When == verdict.Blocked && info.Token != nil:
		a.blocked(info)
		return nil, a.conflict(info, ErrBlocked)
	case v.Claimable.When != verdict.Now:
		a.backOff = 0
		a.tellHeld(f, v)
		return nil, a.conflict(info, ErrHeld)
	case v.State == verdict.Expired:
		if left := watchFor - f.Look.Sub(f.Still); left > 0 {
			a.backOff = 0
			e := a.conflict(info, ErrHeld)
			e.Left = left
			return nil, e
		}
	}
	if err := a.flockFile(); err != nil {
		return nil, err
	}
	err := a.locker.takeOver(ctx, info, wait)
	switch e, ok := errors.AsType[*ConflictError](err); {
	case err == nil:
		a.backOff = 0
		return a.publish(ctx, wait)
	case ok && e.Token != nil && errors.Is(err, ErrBlocked):
		info.Token = e.Token
		a.blocked(info)
	default:
		a.backOff = 0
	}
	return nil, err
}

// denied tells a lock that is there and may not be read from a place where nothing can be found.
func (a *attempt) denied(e *record.Error) error {
	var err error = e
	if _, lerr := os.Lstat(a.path); lerr == nil && errors.Is(e, fs.ErrPermission) {
		err = fmt.Errorf("%w: %w", ErrUnreadable, e)
	}
	return &IOError{Op: opAcquire, Path: a.path, Err: err}
}

func (a *attempt) conflict(info Info, err error) *ConflictError {
	return &ConflictError{
		Op: opAcquire, Path: a.path, Holder: info.Facts.Holder(), Token: info.Token, Verdict: info.Verdict, Err: err,
	}
}

// blocked takes note of a token that stands in the way: a dead lock's attempts become rarer.
func (a *attempt) blocked(info Info) {
	if info.Verdict.State == verdict.Dead {
		a.backOff = min(backOffMax, max(backOffMin, 2*a.backOff))
	} else {
		a.backOff = 0
	}
	a.locker.logBlocked(a.path, info.Token)
}

// tellHeld logs what is odd about a living holder, once an acquire.
func (a *attempt) tellHeld(f *verdict.LockFacts, v *verdict.Verdict) {
	late := (v.State == verdict.Late || v.State == verdict.Stopped) && verdict.Age(f.Beat, f.Look) > verdict.LockLate
	if late && !a.toldLate {
		a.toldLate = true
		a.locker.log().Warn(MsgLate, slog.String("path", a.path),
			slog.Uint64("pid", uint64(f.Record.PID)), slog.Duration("since_heartbeat", verdict.Age(f.Beat, f.Look).Round(time.Millisecond)))
	}
	if v.Flags.Has(verdict.LongHeld) && !a.toldLong {
		a.toldLong = true
		a.locker.log().Warn(MsgLongHeld, slog.String("path", a.path),
			slog.Uint64("pid", uint64(f.Record.PID)))
	}
}

// announce writes the temp of a contender that waits, and watches the directory.
func (a *attempt) announce() error {
	if a.changed == nil {
		a.changed, a.unwatch = a.locker.changes(a.path)
	}
	if a.temp != nil {
		return nil
	}
	_, err := a.write()
	if full(err) {
		return nil // nobody sees it waiting; the disk may have room again when the lock is free
	}
	return err
}

// write makes the temp, or freshens it, and returns the boot-time clock before that.
func (a *attempt) write() (time.Duration, error) {
	l := a.locker
	if err := a.flockFile(); err != nil {
		return 0, err
	}
	boot := l.bootClock()
	now := uint64(max(0, time.Now().UnixMilli()))
	local := a.look.isLocal(a.path)
	if a.rec.WriterEpoch == "" {
		a.rec = l.newRecord(a.look.self, newNonce(a.look.self.PID))
	}
	a.rec.CreatedAtMS, a.rec.HeartbeatAtMS, a.rec.Ours.BeatBootMS = now, now, max(1, boot.Milliseconds())
	a.size = max(a.size, len(a.rec.Encode())+beatMargin)
	a.data = a.rec.EncodePadded(a.size)
	if a.temp == nil {
		t, err := record.CreateTemp(a.path, a.data, record.CreateOptions{Sync: !local, Link: l.link, Rename: l.rename})
		if err != nil {
			return 0, &IOError{Op: opAcquire, Path: a.path, Err: err}
		}
		a.temp = t
		return boot, nil
	}
	_, err := a.temp.File.WriteAt(a.data, 0)
	if err == nil && !local {
		err = a.temp.File.Sync()
	}
	if err != nil {
		return 0, &IOError{Op: opAcquire, Path: a.path, Err: err}
	}
	return boot, nil
}

// publish makes the temp the lock. ErrChanged: the name was taken meanwhile. If it has to take the lock back, it waits
// for the guard at most for wait.
func (a *attempt) publish(ctx context.Context, wait time.Duration) (*Lock, error) {
	l := a.locker
	stamp, err := a.write()
	if err != nil {
		return nil, err
	}
	if err := l.at("freshened", a.path); err != nil {
		return nil, &IOError{Op: opAcquire, Path: a.path, Err: err}
	}
	lock := &Lock{
		locker: l, path: a.path, local: a.look.isLocal(a.path), size: a.size, rec: a.rec, data: a.data, good: stamp,
		lost: make(chan struct{}), turn: make(chan struct{}, 1),
	}
	lock.begin()
	err = a.temp.Publish(a.path)
	if err != nil {
		lock.ended = true
		lock.timer.Stop()
		lock.leave()
		switch {
		case errors.Is(err, fs.ErrExist):
			return nil, &ConflictError{Op: opAcquire, Path: a.path, Err: ErrChanged}
		case errors.Is(err, fs.ErrNotExist) && a.swept():
			return nil, &ConflictError{Op: opAcquire, Path: a.path, Err: ErrChanged}
		}
		return nil, &IOError{Op: opAcquire, Path: a.path, Err: err}
	}
	// From here on the file is the lock's to remove.
	lock.file = a.temp.File
	a.temp = nil
	if lock.stat, err = lock.file.Stat(); err == nil {
		err = l.at("published", a.path)
	}
	if since := l.bootClock() - stamp; err == nil && since > freshFor && since < staleAfter {
		// It slept around the link: who judges by heartbeats alone would soon give it up. One who has done so already
		// compares no heartbeat if it is an original, and removes the lock all the same: then it is taken anew.
		err = lock.beat(opAcquire)
	}
	if err == nil {
		err = a.reclaimed()
	}
	if err == nil {
		// After the token: an original that has dropped its token has removed before that whatever it was about to.
		err = lock.verify(opAcquire)
	}
	lock.handed, lock.ended = err == nil, err != nil
	lock.leave()
	if err == nil {
		l.log().Debug("acquired lock", slog.String("path", a.path))
		return lock, nil
	}
	rerr := lock.release(ctx, wait)
	switch {
	case (errors.Is(err, ErrLost) || errors.Is(err, ErrStale)) && rerr == nil:
		return nil, &ConflictError{Op: opAcquire, Path: a.path, Err: ErrChanged}
	case errors.Is(err, ErrBlocked) && rerr == nil:
		return nil, err
	}
	return nil, &IOError{Op: opAcquire, Path: a.path, Err: errors.Join(err, rerr)}
}

// reclaimed refuses a lock beside which an original is at work with a token. That original may have compared the record
// of the holder before us, and be about to remove what it finds under the name: another original, which has taken ours
// for the dead token that it saw before, can have let it in. Of our own tokens the guard takes care; one over a minute
// old is nobody's at work.
func (a *attempt) reclaimed() error {
	dir, name := filepath.Split(a.path)
	path := dir + record.TokenName(name)
	if _, err := os.Lstat(path); err != nil {
		return nil // none, or a name so long that it can have none
	}
	t := a.look.token(path)
	r := t.Facts.Record
	if r == nil || r.Ours.Guard != nil || t.Token.State == verdict.Dead {
		return nil
	}
	// By the file's time as well: the maker's clock may be ahead of ours.
	if now := t.Facts.Look; max(verdict.Age(t.Token.Created, now), verdict.Age(t.Facts.File.ModTime, now)) > verdict.TokenMalformed {
		return nil
	}
	a.locker.logBlocked(a.path, &t.Token)
	return &ConflictError{Op: opAcquire, Path: a.path, Token: &t.Token, Err: ErrBlocked, Verdict: t.Verdict}
}

// swept reports whether somebody removed the temp, so that a new one is wanted.
func (a *attempt) swept() bool {
	if a.temp.Named(a.temp.Path) || !a.temp.Dir() {
		return false
	}
	a.temp.Close()
	a.temp = nil
	return true
}

// full reports whether there is no room.
func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// peek is Inspect without what only a person reads, and without the token of a lock that nobody would take.
func (k *look) peek(path string) Info {
	f := &verdict.LockFacts{}
	rec, raw := k.see(&f.Seen, path)
	f.Record = rec
	k.users(f)
	info := Info{Path: path, Facts: f, Raw: raw, Verdict: f.Glance(f.Look)}
	if info.Verdict.Claimable.When != verdict.Now || info.Verdict.State == verdict.Free {
		return info
	}
	if f.Token = k.beside(f); f.Token != nil {
		token := f.Token.Token(f.Look)
		info.Token, info.Verdict = &token, f.Glance(f.Look)
	}
	return info
}
