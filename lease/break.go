package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"holdfast/fslock/audit"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// The questions that a caller asks of a refused removal.
var (
	ErrChanged = errors.New("not what was looked at any more")
	ErrNotYet  = errors.New("not taken by any claimant, so it wants force and a reason")
)

// Removal is what a person orders beside what was looked at.
type Removal struct {
	Reason string     // for the audit log. Required with Force.
	Force  bool       // also what no claimant would be granted
	Log    *audit.Log // nil: the user's own
}

const (
	breaking = "break"
	putBack  = "put back"
)

// Break removes somebody else's lease, the one that info shows and no other: it is bound to the claim id or, where none
// is recorded, to the exact bytes, which a renewal changes. Without r.Force it must be one that any claimant would be
// granted at this moment. A holder that still runs learns of its loss at its next Renew or Verify; an AgentMux then
// kills the agent's process.
//
// In the critical section it judges anew, writes the audit log, raises a lower or damaged counter to the record's
// epoch, judges once more and removes. A crash or an error after the second of these leaves an entry of what was not
// done. Of a lease that cannot be read no epoch is known: where its counter is missing, too, SetEpoch must come first.
//
// ctx bounds the wait for the critical section, 5 s where it has no deadline. Errors match ErrBadID, ErrReadOnly,
// ErrNoReason, ErrChanged (also when the lease is gone), ErrUnreadable (no regular file, too large, denied), ErrNotYet,
// ErrEpoch, ErrAudit or ErrBusy, or are the system's; it has removed nothing then.
func (s *Store) Break(ctx context.Context, info Info, r Removal) error {
	const op = breaking
	if err := checkID(op, info.ID); err != nil {
		return err
	}
	switch {
	case s.ReadOnly:
		return refusedReadOnly(op, info.ID)
	case r.Force && strings.TrimSpace(r.Reason) == "":
		return &IOError{Op: op, ID: info.ID, Path: s.path(info.ID, leaseSuffix), Err: ErrNoReason}
	}
	leave, err := s.enter(ctx, op, info.ID, enterLimit)
	if err != nil {
		return err
	}
	defer leave()

	facts, v, err := s.breakable(&info, r.Force)
	if err != nil {
		return err
	}
	entry := audit.Entry{
		Action: audit.ActionBreak, Kind: "lease", Path: facts.Path, ID: facts.ID, Reason: r.Reason,
		Before: append([]byte{}, facts.raw...), EpochOld: facts.Counter.Value,
	}
	if facts.Record != nil {
		entry.Nonce, entry.EpochOld = facts.Record.ClaimID, max(facts.Record.Epoch, entry.EpochOld)
	}
	err = s.audited(op, facts.LeaseFacts, entry, r.Log, func() error {
		if facts.Record != nil {
			if err := s.raiseCounter(op, facts.LeaseFacts, facts.Record.Epoch); err != nil {
				return err
			}
		}
		// Where flocks are not shared, or with a program that takes none, the lease may be another's or renewed by now.
		last, _, err := s.breakable(&info, r.Force)
		if err == nil && facts.Record != nil && last.Record.Epoch != facts.Record.Epoch {
			err = conflict(op, last.LeaseFacts, last.Judge(last.Look), ErrChanged)
		}
		if err == nil {
			err = s.at("removing")
		}
		if err == nil {
			err = os.Remove(facts.Path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = &ConflictError{Op: op, ID: facts.ID, Path: facts.Path, Reason: "somebody else has removed it", Err: ErrChanged}
		}
		return err
	})
	if err != nil {
		return err
	}
	args := []any{
		slog.String("id", facts.ID), slog.String("path", facts.Path), slog.String("state", v.State.String()),
		slog.Bool("forced", r.Force),
	}
	if facts.Record != nil {
		args = append(args, slog.Uint64("pid", uint64(facts.Record.PID)), slog.Uint64("epoch", facts.Record.Epoch))
	}
	s.log().Warn("broke lease", args...)
	return nil
}

// broken is a lease as it was looked at for its removal.
type broken struct {
	*verdict.LeaseFacts
	raw []byte
}

// breakable looks at the lease that info shows, and says why it must not be removed.
func (s *Store) breakable(info *Info, force bool) (broken, verdict.Verdict, error) {
	facts, raw := s.gather(s.table(), info.ID)
	v := facts.Judge(facts.Look)
	var err error
	switch {
	case facts.Missing:
		err = ErrChanged
	case facts.Problem != nil && facts.Problem.Problem != record.Malformed:
		err = ErrUnreadable
	case !info.shows(facts, raw):
		err = ErrChanged
	case v.Claimable.When != verdict.Now && !force:
		err = ErrNotYet
	case facts.Record == nil && facts.Counter.Missing:
		// Nothing would be left that tells of an epoch: the next claim would begin anew with 1.
		_, refusal := facts.NextEpoch()
		return broken{}, v, &EpochError{Op: breaking, ID: facts.ID, Path: facts.Counter.Path, Reason: refusal}
	default:
		return broken{facts, raw}, v, nil
	}
	return broken{}, v, conflict(breaking, facts, v, err)
}

// shows reports whether that is the lease that i shows: the same claim or, where none is recorded, the same bytes.
func (i *Info) shows(f *verdict.LeaseFacts, raw []byte) bool {
	if i.Facts == nil {
		return false
	}
	if r := i.Facts.Record; r != nil && r.ClaimID != "" {
		return f.Record != nil && f.Record.ClaimID == r.ClaimID
	}
	return i.Raw != nil && bytes.Equal(raw, i.Raw)
}

// audited writes the entry of what is about to be done, and does it. What then fails is told to the log as well.
func (s *Store) audited(op string, f *verdict.LeaseFacts, entry audit.Entry, log *audit.Log, do func() error) error {
	err := s.at("judged")
	if err == nil {
		if err = log.Append(entry); err != nil {
			err = fmt.Errorf("%w: %w", ErrAudit, err)
		}
	}
	if err == nil {
		if err = s.at("audited"); err == nil {
			err = do()
		}
		s.outcome(entry, log, err)
	}
	_, conflicts := errors.AsType[*ConflictError](err)
	_, damaged := errors.AsType[*EpochError](err)
	_, told := errors.AsType[*IOError](err)
	if err == nil || conflicts || damaged || told {
		return err
	}
	return &IOError{Op: op, ID: f.ID, Path: f.Path, Err: err}
}

// outcome tells the log what has come of what an entry tells of.
func (s *Store) outcome(entry audit.Entry, log *audit.Log, err error) {
	var lerr error
	switch {
	case err != nil:
		lerr = log.Failed(entry, err)
	case entry.Action == audit.ActionUndo:
		lerr = log.Done(entry)
	}
	if lerr != nil {
		s.log().Warn("audit log lacks the outcome", slog.String("id", entry.ID), slog.Any("error", lerr))
	}
}

// Restore puts back the lease that a Break removed, byte by byte, if there is no lease and the counter is still at its
// epoch: nobody was granted it since. A holder that still runs can renew it again; otherwise it runs out, at the
// latest a TTL from now. Of r only Reason and Log count. The audit log is written first.
//
// ctx bounds the wait for the critical section, 5 s where it has no deadline. Errors match ErrBadID, ErrReadOnly,
// ErrChanged (a *ConflictError says why; also for an entry that tells of something else), ErrUnreadable (what was
// removed is no readable lease), ErrAudit or ErrBusy, or are the system's; it has put back nothing then.
func (s *Store) Restore(ctx context.Context, e audit.Entry, r Removal) error {
	const op = putBack
	if err := checkID(op, e.ID); err != nil {
		return err
	}
	if s.ReadOnly {
		return refusedReadOnly(op, e.ID)
	}
	path := s.path(e.ID, leaseSuffix)
	refused := &ConflictError{Op: op, ID: e.ID, Path: path, Err: ErrChanged}
	if e.Action != audit.ActionBreak || e.Kind != "lease" || audit.Canonical(e.Path) != audit.Canonical(path) {
		refused.Reason = "the audit log's entry tells of no removal of this lease"
		return refused
	}
	rec, err := record.DecodeLease(path, e.Before)
	if err == nil && len(e.Before) > record.MaxSize {
		err = errors.New("larger than what anybody would read")
	}
	if err != nil {
		refused.Reason, refused.Err = "what was removed is no lease that anybody could keep: "+err.Error(), ErrUnreadable
		return refused
	}
	leave, err := s.enter(ctx, op, e.ID, enterLimit)
	if err != nil {
		return err
	}
	defer leave()

	stands, err := r.Log.Stands(e)
	if err != nil {
		return &IOError{Op: op, ID: e.ID, Path: path, Err: fmt.Errorf("%w: %w", ErrAudit, err)}
	}
	facts, _ := s.gather(s.table(), e.ID)
	refused = conflict(op, facts, facts.Judge(facts.Look), ErrChanged)
	switch c := facts.Counter; {
	case !facts.Missing:
		refused.Reason = "there is a lease"
		return refused
	case !stands:
		refused.Reason = "it was put back, or broken again, since"
		return refused
	case c.Problem != nil:
		refused.Reason = "whether it was granted since cannot be told: its epoch counter is damaged (" + c.Problem.Detail + ")"
		return refused
	case c.Value != rec.Epoch: // it is 0 when the counter is missing, as the epoch of an old build's lease
		refused.Reason = fmt.Sprintf("its epoch was %d and the counter is at %d, so it may have been granted since", rec.Epoch, c.Value)
		return refused
	}
	entry := audit.Entry{
		Action: audit.ActionUndo, Kind: "lease", Path: path, ID: e.ID, Reason: r.Reason,
		EpochOld: rec.Epoch, Nonce: rec.ClaimID,
	}
	err = s.audited(op, facts, entry, r.Log, func() error { return record.Create(path, e.Before) })
	if errors.Is(err, fs.ErrExist) {
		facts, _ = s.gather(s.table(), e.ID)
		refused = conflict(op, facts, facts.Judge(facts.Look), ErrChanged)
		refused.Reason = "there is a lease"
		return refused
	}
	if err != nil {
		return err
	}
	s.log().Warn("put lease back", slog.String("id", e.ID), slog.String("path", path),
		slog.Uint64("pid", uint64(rec.PID)), slog.Uint64("epoch", rec.Epoch))
	return nil
}
