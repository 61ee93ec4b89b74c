package lease

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/google/uuid"

	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// Claim takes the lease of id, or says who has it. It is granted when nobody holds it, its holder is proven dead,
// it ran out, or it is unreadable and nobody rewrote it for a TTL. The claimant's own lease (same owner and block)
// is granted again to the process that holds it, with a new claim id that fences older handles; any other process
// must wait for it like everybody. The directory must exist.
//
// ctx bounds the wait for the critical section, 5 s where it has no deadline, never the hold. Errors match ErrBadID,
// ErrHeld, ErrUnreadable, ErrEpoch, ErrBusy or ErrReadOnly.
func (s *Store) Claim(ctx context.Context, id string, c Claimant) (*Lease, error) {
	const op = "claim"
	if err := checkID(op, id); err != nil {
		return nil, err
	}
	if s.ReadOnly {
		return nil, refusedReadOnly(op, id)
	}
	c.Owner, c.Block = orUnique(asWritten(c.Owner)), orUnique(asWritten(c.Block))
	leave, err := s.enter(ctx, op, id, enterLimit)
	if err != nil {
		return nil, err
	}
	defer leave()

	table := s.table()
	facts, _ := s.gather(table, id)
	v := facts.Judge(facts.Look)
	epoch, err := s.grant(op, facts, v, c)
	if err != nil {
		return nil, err
	}
	if err := s.raiseCounter(op, facts, epoch); err != nil {
		return nil, err
	}
	if err := s.at("counted"); err != nil {
		return nil, &IOError{Op: op, ID: id, Path: s.path(id, leaseSuffix), Err: err}
	}
	// The stamp is taken before the write: however long that takes, the holder never believes in more than the TTL.
	stamp := s.bootClock()
	rec := s.newRecord(table.Self(), id, c, epoch, stamp)
	if err := s.write(op, id, rec); err != nil {
		return nil, err
	}
	s.logTaking(facts, v, epoch)
	return &Lease{
		store: s, id: id, owner: c.Owner, block: c.Block, claimID: rec.ClaimID, epoch: epoch,
		good: stamp, lost: make(chan struct{}), released: make(chan struct{}),
	}, nil
}

// grant decides, and returns the epoch to claim with.
func (s *Store) grant(op string, f *verdict.LeaseFacts, v verdict.Verdict, c Claimant) (uint64, error) {
	r := f.Record
	own := r != nil && r.OwnerBootID == c.Owner
	sameBlock := own && (r.BlockID == "" || r.BlockID == c.Block)
	next, refusal := f.NextEpoch()
	switch {
	case sameBlock && f.Self:
		if r.Epoch > 0 && f.Counter.Value <= r.Epoch { // 0 when it is damaged or missing
			return r.Epoch, nil
		}
	case own && !sameBlock && v.State != verdict.Expired && !f.Look.After(f.Expires()),
		v.State != verdict.Free && v.State != verdict.Dead && v.State != verdict.Expired && v.State != verdict.Unreadable:
		e := conflict(op, f, v, ErrHeld)
		e.SameOwner = own
		return 0, e
	case v.State == verdict.Unreadable && f.Problem.Problem != record.Malformed:
		return 0, conflict(op, f, v, ErrUnreadable)
	case v.State == verdict.Unreadable && !f.Look.After(f.Expires()):
		return 0, conflict(op, f, v, ErrHeld)
	}
	if refusal != "" {
		e := &EpochError{Op: op, ID: f.ID, Path: f.Counter.Path, Reason: refusal}
		if f.Counter.Problem != nil {
			e.Err = f.Counter.Problem
		}
		return 0, e
	}
	return next, nil
}

// raiseCounter writes the counter, durably, unless it is there and at least epoch: an epoch that was given out
// must never come again, whatever happens to the lease file or the machine.
func (s *Store) raiseCounter(op string, f *verdict.LeaseFacts, epoch uint64) error {
	c := f.Counter
	if c.Value >= epoch { // it is 0 when the counter is damaged or missing
		return nil
	}
	err := record.Replace(c.Path, record.EncodeCounter(epoch), record.ReplaceOptions{Sync: true, SyncDir: true})
	if err != nil {
		return &IOError{Op: op, ID: f.ID, Path: c.Path, Err: err}
	}
	return nil
}

func (s *Store) newRecord(self proc.Self, id string, c Claimant, epoch uint64, stamp time.Duration) *record.Lease {
	now := time.Now().UnixMilli()
	r := &record.Lease{
		InstanceID: id, OwnerBootID: c.Owner, BlockID: c.Block,
		PID: uint32(self.PID), AcquiredAtMS: now, RenewedAtMS: now, Epoch: epoch,
		Hostname: strings.ToLower(strings.TrimSpace(self.Host)), PIDStartS: self.StartUnix,
		Channel: c.Channel, Version: c.Version, ClaimID: uuid.NewString(), Ours: ours(self, stamp),
	}
	if c.Session != "" {
		r.SessionID = &c.Session
	}
	return r
}

// ours is what only this process can record of itself.
func ours(self proc.Self, stamp time.Duration) record.Ours {
	return record.Ours{
		PIDNS: self.PIDNS, PidfdIno: self.PidfdIno, TimeNS: self.TimeNS, BeatBootMS: bootMilli(stamp),
		KernelBootID: self.BootID, PIDStartTicks: self.StartTicks,
	}
}

// write replaces the lease file. It is forced to disk only where another machine could read it: on a local file
// system the lease dies with the boot that it names, and a torn one heals.
func (s *Store) write(op, id string, r *record.Lease) error {
	path := s.path(id, leaseSuffix)
	data := r.Encode()
	if len(data) > record.MaxSize {
		// Nobody would read it, so nobody could renew, release or take it again.
		return &IOError{Op: op, ID: id, Path: path, Err: fmt.Errorf("%s: a record of %d bytes is too large", path, len(data))}
	}
	_, local := record.FileSystem(s.Dir)
	if err := record.Replace(path, data, record.ReplaceOptions{Sync: !local, SyncDir: !local}); err != nil {
		return &IOError{Op: op, ID: id, Path: path, Err: err}
	}
	return nil
}

// logTaking tells of a lease that was taken from somebody: not of one's own that was claimed again.
func (s *Store) logTaking(f *verdict.LeaseFacts, v verdict.Verdict, epoch uint64) {
	switch v.State {
	case verdict.Dead, verdict.Expired, verdict.Unreadable:
		if f.Record != nil && f.Record.Epoch == epoch {
			return
		}
		args := []any{slog.String("id", f.ID), slog.String("path", f.Path), slog.String("state", v.State.String()), slog.String("cause", v.Cause)}
		if f.Record != nil {
			args = append(args, slog.Uint64("pid", uint64(f.Record.PID)))
		}
		s.log().Warn("reclaimed lease", args...)
	default:
	}
}

// bootMilli is a boot-time stamp for a record; 0 would mean that there is none.
func bootMilli(d time.Duration) int64 { return max(1, d.Milliseconds()) }

// asWritten is a text as it will be read again: a byte that is no UTF-8 becomes U+FFFD in the record, and a handle that
// remembered the byte would not know its own lease.
func asWritten(s string) string { return string([]rune(s)) }

func orUnique(s string) string {
	if s == "" {
		return uuid.NewString()
	}
	return s
}
