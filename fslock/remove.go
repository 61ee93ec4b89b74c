package fslock

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"time"

	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// takeOver removes the lock that info shows, for a contender, under guard and token. Only what is looked at again
// directly before its removal and found dead, expired or torn for its time goes: a dead holder's lock by its identity,
// any other only if not a byte of it has moved. For how long an expired one was watched is the caller's business.
//
// It waits for the guard at most for wait. nil: the lock file is gone. Errors match ErrChanged (look again) or
// ErrBlocked (by the *ConflictError's Token, or by whoever has the guard: *BusyError), or are an *IOError.
func (l *Locker) takeOver(ctx context.Context, info Info, wait time.Duration) error {
	const op = "acquire"
	return l.underToken(ctx, op, &info, wait, func(k *look, t *token) error {
		now, ours := k.again(info.Path, t)
		if !ours || !stillTakeable(&info, &now) {
			return changed(op, &now)
		}
		if err := l.at("reread", info.Path); err != nil {
			return err
		}
		if err := l.unlinkLock(op, &now); err != nil {
			return err
		}
		var pid uint32
		var host string
		if h := now.Facts.Holder(); h != nil {
			pid, host = h.PID, h.Host
		}
		l.log().Warn("took over lock", "path", info.Path, "pid", pid, "host", host,
			"state", now.Verdict.State.String(), "cause", now.Verdict.Cause)
		return l.at("removed", info.Path)
	})
}

// underToken does something to the lock that info shows while this process has its guard and its token.
func (l *Locker) underToken(ctx context.Context, op string, info *Info, wait time.Duration, do func(*look, *token) error) error {
	g, err := l.enterGuard(ctx, op, info.Path, wait)
	if err != nil {
		return err
	}
	defer g.leave()
	if err := l.at("guarded", info.Path); err != nil {
		return err
	}
	t, err := l.makeToken(op, info, g)
	if err != nil {
		return err
	}
	defer t.drop()
	if err := l.at("tokened", info.Path); err != nil {
		return err
	}
	err = do(l.look(l.table()), t)
	if ferr := l.at("dropping", info.Path); err == nil {
		err = ferr
	}
	return err
}

// again looks at a lock under the token that this process made, of which the verdict then says nothing. It is false
// when that token is there no more: an original works beside us, and nothing can be taken.
func (k *look) again(path string, t *token) (Info, bool) {
	now := k.lock(path)
	if t != nil && !t.is(now.Facts.Token) {
		return now, false
	}
	now.Facts.Token, now.Token = nil, nil
	now.Verdict = now.Facts.Glance(now.Facts.Look)
	return now, true
}

// stillTakeable reports whether now is what info shows, and a contender still takes it.
func stillTakeable(info, now *Info) bool {
	if now.Facts.Missing || now.Verdict.Claimable.When != verdict.Now {
		return false
	}
	if now.Verdict.State == verdict.Dead {
		return sameHolder(info, now)
	}
	// Dead a moment ago and now only expired is another matter: that wants to be watched first.
	return now.Verdict.State == info.Verdict.State && sameBytes(info, now)
}

// sameHolder reports whether both show the same holder, whose heartbeat may have moved.
func sameHolder(a, b *Info) bool {
	return a.Facts.Record != nil && b.Facts.Record != nil && a.Facts.Record.SameOwner(b.Facts.Record)
}

// sameBytes reports whether both show the same file, written at the same time, with the same in it.
func sameBytes(a, b *Info) bool {
	return a.Raw != nil && b.Raw != nil && bytes.Equal(a.Raw, b.Raw) && a.Facts.File == b.Facts.File
}

func changed(op string, now *Info) *ConflictError {
	return &ConflictError{
		Op: op, Path: now.Path, Holder: now.Facts.Holder(), Token: now.Token, Verdict: now.Verdict, Err: ErrChanged,
	}
}

// unlinkLock removes the lock if it is to the byte what now shows.
func (l *Locker) unlinkLock(op string, now *Info) error {
	err := l.unlinkUnchanged(now.Path, &now.Facts.Seen, now.Raw)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrChanged):
		return changed(op, now)
	default:
		return &IOError{Op: op, Path: now.Path, Err: err}
	}
}

// unlinkUnchanged removes the file at path if it is what was seen: the same inode with the same times and the same
// bytes. Between that compare and the removal lie microseconds, in which a change is not noticed. It returns ErrChanged
// itself, or the system's error.
func (l *Locker) unlinkUnchanged(path string, seen *verdict.Seen, raw []byte) error {
	f, err := record.Read(path)
	if e, ok := errors.AsType[*record.Error](err); ok && e.Problem != record.Denied || errors.Is(err, fs.ErrNotExist) {
		return ErrChanged
	}
	if err != nil {
		return err
	}
	if raw == nil || f.Stat != seen.File || !bytes.Equal(f.Data, raw) {
		return ErrChanged
	}
	if err := l.at("compared", path); err != nil {
		return err
	}
	if err := unlink(path); errors.Is(err, fs.ErrNotExist) {
		return ErrChanged
	} else if err != nil {
		return err
	}
	return nil
}
