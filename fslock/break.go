package fslock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"holdfast/fslock/audit"
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

const (
	watchPause   = time.Second     // at most, between two looks of that watch
	handWait     = 5 * time.Second // for the guard, of what a person orders
	breakRounds  = 4               // a live holder beats every 5 s: two rounds are rare
	removeOp     = "remove"
	leaseTemps   = ".registry-tmp-"
	leaseTempsOf = "registry" // the name in the place of a lock's, off the local file systems, for the guard of leases' temps
)

// Removal is what a person orders beside what was looked at.
type Removal struct {
	Reason string     // for the audit log. Required with Force.
	Force  bool       // also what no contender would take
	Action string     // of the audit log; "": ActionBreak for a lock, ActionToken for a token, ActionSweep for a temp
	Log    *audit.Log // nil: the user's own
}

// Break removes somebody else's lock, the one that info shows and no other. What info shows is bound to the holder
// that its record names, whose heartbeat may have moved, or, where there is no record, to the bytes; the lock is
// judged anew. Without Force only what any contender would take goes: a dead holder's, an expired or a torn one.
// With Force and a Reason goes whatever was read. The audit log has the removed bytes before they go.
//
// It waits up to 16 s for an expired lock to be watched unchanged, less for what this Locker has watched already,
// and up to 5 s for other removals in the directory, all as long as ctx lets it.
//
// Errors: ErrReadOnly, ErrNoReason; ErrNotYet for what wants Force (when ctx ended the watch also ctx's error, and Left
// says how much is missing); ErrChanged when the lock is gone, another's, or moved while it was watched; ErrBlocked by
// a token, which must be removed first, or by whoever has the guard (*BusyError); ErrUnreadable for what was not read
// (no regular file, too large, denied), which cannot be bound and is never removed; ErrAudit when the log could not be
// written, and nothing was removed; else an *IOError.
//
// Not promised: that a live holder learns of it before its next heartbeat; that its last beat is seen when it
// comes in the microseconds between the last compare and the removal.
func (l *Locker) Break(ctx context.Context, info Info, r Removal) error {
	const op = "break"
	if err := l.permit(op, info.Path, &r); err != nil {
		return err
	}
	now := l.Inspect(info.Path)
	if err := bound(op, &info, &now); err != nil {
		return err
	}
	if !r.Force && !takeable(&now) {
		return &ConflictError{
			Op: op, Path: now.Path, Holder: now.Facts.Holder(), Token: now.Token, Verdict: now.Verdict, Err: ErrNotYet,
		}
	}
	if t := now.Facts.Token; t != nil && t.Blocks(t.Look) && (t.Record == nil || t.Record.Ours.Guard == nil) {
		// Nobody should wait for the watch, or for the guard, to be told of a token that no guard clears.
		return blocked(op, &now, &TokenInfo{Path: t.Path, Facts: t, Token: t.Token(t.Look)})
	}
	if now.Verdict.State == verdict.Expired {
		var err error
		if now, err = l.watch(ctx, op, now); err != nil {
			return err
		}
	}
	for round := 1; ; round++ {
		err := l.breakOnce(ctx, op, &now, &r)
		if !r.Force || now.Verdict.State == verdict.Expired || round == breakRounds || !errors.Is(err, ErrChanged) {
			return err
		}
		// A beat came in between: it is the same holder still.
		now = l.Inspect(info.Path)
		if err := bound(op, &info, &now); err != nil {
			return err
		}
	}
}

// breakOnce removes the lock unless it moves between the last two looks.
func (l *Locker) breakOnce(ctx context.Context, op string, info *Info, r *Removal) error {
	return l.underToken(ctx, op, info, handWait, func(k *look, t *token) error {
		now, ours := k.again(info.Path, t)
		if !ours {
			return changed(op, &now)
		}
		if err := bound(op, info, &now); err != nil {
			return err
		}
		// What was watched, or needs no force, is still what the plan says.
		if (!r.Force || info.Verdict.State == verdict.Expired) && !stillTakeable(info, &now) {
			return changed(op, &now)
		}
		if err := l.at("reread", info.Path); err != nil {
			return err
		}
		nonce := nonceOf(now.Facts.Record)
		e := audit.Entry{Action: audit.ActionBreak, Path: info.Path, Kind: "lock", Before: now.Raw, Nonce: nonce}
		if err := l.audited(op, r, e, func() error { return l.unlinkLock(op, &now) }); err != nil {
			return err
		}
		l.log().Info("broke lock", "path", info.Path, "state", now.Verdict.State.String(), "writer_epoch", nonce, "force", r.Force)
		return l.at("removed", info.Path)
	})
}

// RemoveToken removes a reclaim token, the one that info shows and no other, under the guard of its lock. Without Force
// goes what an attempt to take the lock would clear: a token whose maker is proven dead, a malformed one over 60 s old,
// one that was made under the very guard that is had now. With Force and a Reason goes any that was read.
//
// It waits up to 5 s for other removals in the directory, as long as ctx lets it. Errors are those of Break; ErrNotYet
// has the token. An original that removes a lock at this moment has no guard: what its token kept apart is
// apart no more, if it was removed by force.
func (l *Locker) RemoveToken(ctx context.Context, info TokenInfo, r Removal) error {
	if err := l.permit(removeOp, info.Path, &r); err != nil {
		return err
	}
	dir, name := filepath.Split(info.Path)
	lock, ok := record.ParseToken(name)
	if !ok || info.Facts == nil {
		return &IOError{Op: removeOp, Path: info.Path, Err: fs.ErrInvalid}
	}
	g, err := l.enterGuard(ctx, removeOp, dir+lock, handWait)
	if err != nil {
		return err
	}
	defer g.leave()
	if err := l.at("guarded", info.Path); err != nil {
		return err
	}
	k := l.look(l.table())
	now := k.token(info.Path)
	refused := ConflictError{Op: removeOp, Path: info.Path, Holder: now.Facts.Holder(), Token: &now.Token, Verdict: now.Verdict}
	if refused.Err = sameEntry(
		entry{&info.Facts.Seen, info.Facts.Record, info.Raw}, entry{&now.Facts.Seen, now.Facts.Record, now.Raw},
	); refused.Err != nil {
		return &refused
	}
	if !r.Force && !k.clears(&now, g) {
		refused.Err = ErrNotYet
		return &refused
	}
	return l.removeEntry(&refused, &r, &now.Facts.Seen, audit.Entry{
		Action: audit.ActionToken, Path: info.Path, Kind: "token", Before: now.Raw, Nonce: nonceOf(now.Facts.Record),
	})
}

// RemoveTemp removes a temp file, a lock's or a lease's, the one that info shows and no other, under the guard of its
// lock. One whose process is alive never goes (ErrHeld). Without Force goes only litter: what a process left that is
// proven dead, or what is no record and no process has open for writing; for how long it must have lain there
// is the caller's business.
//
// It waits up to 5 s for other removals in the directory, as long as ctx lets it. Errors are those of Break and
// ErrHeld.
func (l *Locker) RemoveTemp(ctx context.Context, info TempInfo, r Removal) error {
	if err := l.permit(removeOp, info.Path, &r); err != nil {
		return err
	}
	dir, name := filepath.Split(info.Path)
	lock, _, ok := record.ParseTemp(name)
	if strings.HasPrefix(name, leaseTemps) {
		lock, ok = leaseTempsOf, true
	}
	if !ok || info.Facts == nil {
		return &IOError{Op: removeOp, Path: info.Path, Err: fs.ErrInvalid}
	}
	g, err := l.enterGuard(ctx, removeOp, dir+lock, handWait)
	if err != nil {
		return err
	}
	defer g.leave()
	if err := l.at("guarded", info.Path); err != nil {
		return err
	}
	now := l.InspectTemp(info.Path)
	refused := ConflictError{Op: removeOp, Path: info.Path, Holder: now.Facts.Holder(), Verdict: now.Verdict}
	if refused.Err = sameEntry(
		entry{&info.Facts.Seen, info.Facts.Record, info.Raw}, entry{&now.Facts.Seen, now.Facts.Record, now.Raw},
	); refused.Err != nil {
		return &refused
	}
	switch {
	case now.Facts.Proc.Answer == proc.Alive:
		refused.Err = ErrHeld
		return &refused
	case !r.Force && !l.isLitter(&now):
		refused.Err = ErrNotYet
		return &refused
	}
	return l.removeEntry(&refused, &r, &now.Facts.Seen, audit.Entry{
		Action: audit.ActionSweep, Path: info.Path, Kind: "temp", Before: now.Raw, Nonce: nonceOf(now.Facts.Record),
	})
}

func (l *Locker) isLitter(t *TempInfo) bool {
	if t.Verdict.State == verdict.Litter {
		return true
	}
	if t.Facts.Problem == nil || t.Facts.Problem.Problem != record.Malformed {
		return false
	}
	writers, complete := l.table().Writers(t.Facts.File.Dev, t.Facts.File.Ino)
	return len(writers) == 0 && complete
}

// Restore puts back the lock that a Break removed, from its entry in the audit log, byte for byte: if its holder is
// not alive now, and nothing has its name. Nothing is overwritten; its time is that of now. The audit log is told
// first.
//
// It waits up to 5 s for removals in the directory, as long as ctx lets it. Errors: ErrReadOnly, ErrNoReason; an
// *IOError that matches fs.ErrInvalid for an entry that is no break of a lock or has not its bytes; ErrHeld when the
// holder lives or the name is taken; ErrAudit when the log could not be written, and nothing was put back; else an
// *IOError.
//
// Not promised: that the lock stays. The next contender judges it like any other, and takes a dead holder's at once.
func (l *Locker) Restore(ctx context.Context, e audit.Entry, r Removal) error {
	const op = "restore"
	if err := l.permit(op, e.Path, &r); err != nil {
		return err
	}
	if e.Action != audit.ActionBreak || e.Kind != "lock" || e.Before == nil {
		return &IOError{Op: op, Path: e.Path, Err: fs.ErrInvalid}
	}
	g, err := l.enterGuard(ctx, op, e.Path, handWait)
	if err != nil {
		return err
	}
	defer g.leave()
	if err := l.at("guarded", e.Path); err != nil {
		return err
	}
	k := l.look(l.table())
	now := k.lock(e.Path)
	refused := &ConflictError{Op: op, Path: e.Path, Holder: now.Facts.Holder(), Token: now.Token, Verdict: now.Verdict, Err: ErrHeld}
	if !now.Facts.Missing {
		return refused
	}
	switch stands, err := r.Log.Stands(e); {
	case err != nil:
		return &IOError{Op: op, Path: e.Path, Err: fmt.Errorf("%w: %w", ErrAudit, err)}
	case !stands:
		refused.Err = ErrChanged
		return refused
	}
	f := &verdict.LockFacts{Seen: verdict.Seen{Path: e.Path, Host: k.self.Host, Boot: k.self.BootID, Look: now.Facts.Look}}
	if rec, err := record.DecodeLock(e.Path, e.Before); err == nil {
		f.Record = &rec
		k.identify(&f.Seen, &rec)
		if f.Proc.Answer == proc.Alive {
			refused.Holder, refused.Verdict = f.Holder(), f.Judge(f.Look)
			return refused
		}
	}
	r.Action = audit.ActionUndo
	undo := audit.Entry{Path: e.Path, Kind: "lock", Nonce: nonceOf(f.Record)}
	err = l.audited(op, &r, undo, func() error { return record.Create(e.Path, e.Before) })
	switch _, ours := errors.AsType[*IOError](err); {
	case errors.Is(err, fs.ErrExist):
		now = k.lock(e.Path)
		refused.Holder, refused.Token, refused.Verdict = now.Facts.Holder(), now.Token, now.Verdict
		return refused
	case ours:
		return err
	case err != nil:
		return &IOError{Op: op, Path: e.Path, Err: err}
	}
	l.log().Info("restored lock", "path", e.Path, "writer_epoch", nonceOf(f.Record))
	return nil
}

// permit refuses what needs no look.
func (l *Locker) permit(op, path string, r *Removal) error {
	switch {
	case l.ReadOnly:
		return &IOError{Op: op, Path: path, Err: ErrReadOnly}
	case r.Force && strings.TrimSpace(r.Reason) == "":
		return &IOError{Op: op, Path: path, Err: ErrNoReason}
	}
	return nil
}

// entry is what binds a removal.
type entry struct {
	seen   *verdict.Seen
	record *record.Lock
	raw    []byte
}

// sameEntry says whether now is the file that a person was shown: nil, ErrChanged, or ErrUnreadable for what cannot be
// bound.
func sameEntry(shown, now entry) error {
	switch {
	case shown.seen.Missing, now.seen.Missing:
		return ErrChanged
	case shown.record != nil && now.record != nil:
		if shown.record.SameOwner(now.record) {
			return nil
		}
	case shown.raw == nil && now.raw == nil:
		return ErrUnreadable
	case shown.raw != nil && now.raw != nil && shown.record == nil && now.record == nil && bytes.Equal(shown.raw, now.raw):
		return nil
	}
	return ErrChanged
}

func bound(op string, shown, now *Info) error {
	if shown.Facts == nil {
		return changed(op, now)
	}
	err := sameEntry(
		entry{&shown.Facts.Seen, shown.Facts.Record, shown.Raw}, entry{&now.Facts.Seen, now.Facts.Record, now.Raw},
	)
	if err == nil {
		return nil
	}
	e := changed(op, now)
	e.Err = err
	return e
}

// takeable reports whether any contender would take the lock, were there no token.
func takeable(now *Info) bool {
	facts := *now.Facts
	facts.Token = nil
	return !facts.Missing && facts.Glance(facts.Look).Claimable.When == verdict.Now
}

// watch looks at an expired lock until it was seen unchanged for as long as a taker has to. Its holder may have
// been unable to write, and go on: three heartbeats would then have come.
func (l *Locker) watch(ctx context.Context, op string, info Info) (Info, error) {
	for {
		still := time.Duration(0)
		if !info.Facts.Still.IsZero() {
			still = info.Facts.Look.Sub(info.Facts.Still)
		}
		if still >= watchFor {
			return info, nil
		}
		select {
		case <-ctx.Done():
			return info, &ConflictError{
				Op: op, Path: info.Path, Holder: info.Facts.Holder(), Token: info.Token, Verdict: info.Verdict,
				Left: watchFor - still, Err: ErrNotYet, Ended: ctx.Err(),
			}
		case <-time.After(min(watchPause, watchFor-still)):
		}
		now := l.Inspect(info.Path)
		if now.Verdict.State != verdict.Expired || !sameBytes(&info, &now) {
			return now, changed(op, &now)
		}
		info = now
	}
}

// audited writes the entry of what is about to be done, and does it. What then fails is told to the log as well.
func (l *Locker) audited(op string, r *Removal, e audit.Entry, do func() error) error {
	e.Action, e.Reason = cmp.Or(r.Action, e.Action), r.Reason
	if err := l.at("auditing", e.Path); err != nil {
		return err
	}
	if err := r.Log.Append(e); err != nil {
		return &IOError{Op: op, Path: e.Path, Err: fmt.Errorf("%w: %w", ErrAudit, err)}
	}
	err := l.at("audited", e.Path)
	if err == nil {
		err = do()
	}
	var lerr error
	switch {
	case err != nil:
		lerr = r.Log.Failed(e, err)
	case e.Action == audit.ActionUndo:
		lerr = r.Log.Done(e)
	}
	if lerr != nil {
		l.log().Warn("audit log lacks the outcome", "path", e.Path, "error", lerr)
	}
	return err
}

// removeEntry removes a token or a temp, if it is still what was looked at, after its entry in the audit log.
func (l *Locker) removeEntry(refused *ConflictError, r *Removal, seen *verdict.Seen, e audit.Entry) error {
	dir, _ := filepath.Split(e.Path)
	if err := writable(cmp.Or(dir, ".")); err != nil {
		// An hourly sweep would fill the log with what it may not do.
		return &IOError{Op: refused.Op, Path: e.Path, Err: err}
	}
	err := l.audited(refused.Op, r, e, func() error { return l.unlinkUnchanged(e.Path, seen, e.Before) })
	switch _, ours := errors.AsType[*IOError](err); {
	case errors.Is(err, ErrChanged):
		refused.Err = ErrChanged
		return refused
	case err != nil && !ours:
		return &IOError{Op: refused.Op, Path: e.Path, Err: err}
	case err != nil:
		return err
	}
	l.log().Info("removed file", "path", e.Path, "kind", e.Kind, "state", refused.Verdict.State.String(), "force", r.Force)
	return l.at("removed", e.Path)
}

func nonceOf(r *record.Lock) string {
	if r == nil {
		return ""
	}
	return r.WriterEpoch
}
