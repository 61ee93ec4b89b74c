package fslock

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// token is a reclaim token that this process made: it keeps the originals, who know no guard, from removing the lock. A
// nil one stands for the token of a name so long that nobody can make it.
type token struct {
	locker *Locker
	path   string
	record record.Lock
}

// makeToken makes the token of the lock that info shows, under its guard. One that is left over is cleared, and then
// one more attempt made. Errors: a *ConflictError with the token that blocks, matching ErrBlocked, or ErrChanged when
// tokens come and go; an *IOError.
func (l *Locker) makeToken(op string, info *Info, g *guard) (*token, error) {
	dir, name := filepath.Split(info.Path)
	name = record.TokenName(name)
	if len(name) > maxName {
		return nil, nil
	}
	k := l.look(l.table())
	t := &token{locker: l, path: dir + name, record: l.tokenRecord(k.self, g)}
	err := record.Create(t.path, t.record.Encode())
	if errors.Is(err, fs.ErrExist) {
		found := k.token(t.path)
		switch {
		case t.is(found.Facts):
			return t, nil // only the answer was lost
		case found.Facts.Missing:
		case !k.clears(&found, g):
			return nil, blocked(op, info, &found)
		default:
			if err := l.clear(op, &found); err != nil {
				return nil, err
			}
		}
		if err := l.at("cleared", t.path); err != nil {
			return nil, err
		}
		if err = record.Create(t.path, t.record.Encode()); errors.Is(err, fs.ErrExist) {
			if found = k.token(t.path); !t.is(found.Facts) {
				return nil, blocked(op, info, &found)
			}
			err = nil
		}
	}
	if err != nil {
		return nil, &IOError{Op: op, Path: info.Path, Err: fmt.Errorf("its reclaim token: %w", err)}
	}
	return t, nil
}

// tokenRecord is the record of a token that this process makes now.
func (l *Locker) tokenRecord(self proc.Self, g *guard) record.Lock {
	now := time.Now()
	r := l.newRecord(self, fmt.Sprintf("reclaim-%d-%d", self.PID, now.UnixNano()))
	r.CreatedAtMS = uint64(max(0, now.UnixMilli()))
	r.HeartbeatAtMS = r.CreatedAtMS
	r.Ours.BeatBootMS, r.Ours.Guard = max(1, l.bootClock().Milliseconds()), g.id
	return r
}

// clears reports whether whoever has the guard clears the token: its maker is proven dead, it has been malformed for
// its time, or it was made under this very guard, which its maker has therefore left.
func (k *look) clears(t *TokenInfo, g *guard) bool {
	if t.Facts.Missing {
		return false
	}
	if !t.Facts.Blocks(t.Facts.Look) {
		return true
	}
	r := t.Facts.Record
	return r != nil && g.id != nil && r.Ours.Guard != nil && *r.Ours.Guard == *g.id &&
		k.self.BootID != "" && r.BootID != nil && *r.BootID == k.self.BootID
}

// clear removes a token that is left over. That it is gone or another one by now is no error.
func (l *Locker) clear(op string, t *TokenInfo) error {
	if err := l.at("clearing", t.Path); err != nil {
		return err
	}
	switch err := l.unlinkUnchanged(t.Path, &t.Facts.Seen, t.Raw); {
	case errors.Is(err, ErrChanged):
	case err != nil:
		return &IOError{Op: op, Path: t.Path, Err: err}
	default:
		l.log().Debug("cleared reclaim token", "path", t.Path, "pid", t.Token.PID, "host", t.Token.Host, "state", t.Token.State.String())
	}
	return nil
}

// blocked says which token stands in the way of the lock that info shows.
func blocked(op string, info *Info, t *TokenInfo) error {
	if t.Facts.Missing {
		return changed(op, info)
	}
	facts := *info.Facts
	facts.Token = t.Facts
	return &ConflictError{
		Op: op, Path: info.Path, Holder: facts.Holder(), Token: &t.Token, Verdict: facts.Judge(t.Facts.Look), Err: ErrBlocked,
	}
}

// is reports whether what was seen at the token's path is this token.
func (t *token) is(f *verdict.TokenFacts) bool {
	return f != nil && f.Record != nil && f.Record.SameOwner(&t.record)
}

// drop removes the token, if it is still there. One that stays blocks the originals for as long as this process lives.
func (t *token) drop() {
	if t == nil {
		return
	}
	file, r, err := record.ReadLock(t.path)
	if e, ok := errors.AsType[*record.Error](err); errors.Is(err, fs.ErrNotExist) || ok && e.Problem != record.Denied ||
		err == nil && !r.SameOwner(&t.record) {
		return // somebody, at worst an original, has removed it and perhaps made another
	}
	if err == nil {
		err = t.locker.unlinkUnchanged(t.path, &verdict.Seen{File: file.Stat}, file.Data)
	}
	if err != nil && !errors.Is(err, ErrChanged) {
		t.locker.log().Warn("left reclaim token behind", "path", t.path, "error", err)
	}
}
