package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"strings"
	"syscall"

	"holdfast/fslock/audit"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
)

// The questions that a caller asks of a refused repair.
var (
	ErrEpochBelow = errors.New("old epochs could come again")
	ErrNoReason   = errors.New("a reason is wanted")
	ErrAudit      = errors.New("audit log cannot be kept") // so nothing was changed
)

// EpochBelowError refuses to set a counter below an epoch that was given out. It matches ErrEpochBelow.
type EpochBelowError struct {
	Op, ID, Path string // of the counter
	Epoch        uint64 // that was wanted
	Known        Epochs
}

func (e *EpochBelowError) Error() string {
	return fmt.Sprintf("%s lease %s: %s: %v: %d is below %s; an epoch from %d on could be given out a second time, and whoever "+
		"still works under it could pass for its owner of today",
		e.Op, e.ID, e.Path, ErrEpochBelow, e.Epoch, e.Known.above(e.Epoch), e.Epoch+1)
}

func (e *EpochBelowError) Unwrap() error { return ErrEpochBelow }

// Epochs is what is known of the epochs of a lease, from three places.
type Epochs struct {
	ID, Path string          // Path of the lease file, whether or not it is there
	Counter  verdict.Counter // the file that counts
	Recorded uint64          // epoch of the record; 0: there is none, or it cannot be read
	Problem  *record.Error   // the lease is there and cannot be read
	Logged   uint64          // the highest that the audit log knows; 0: none
	LogLines []*audit.LineError
	LogErr   error  // the audit log cannot be read; matches ErrAudit
	Next     uint64 // the epoch that the next owner gets; 0: none, for Refusal's reason
	Refusal  string
}

// Highest is the highest epoch that is known to have been given out; 0: none is known.
func (e *Epochs) Highest() uint64 { return max(e.Counter.Value, e.Recorded, e.Logged) }

// Below returns an *EpochBelowError if a counter set to n would let an epoch that is known come again.
func (e *Epochs) Below(n uint64) error {
	if n >= e.Highest() {
		return nil
	}
	return &EpochBelowError{Op: setEpoch, ID: e.ID, Path: e.Counter.Path, Epoch: n, Known: *e}
}

// above names what knows a higher epoch than n.
func (e *Epochs) above(n uint64) string {
	var who []string
	for _, known := range []struct {
		name  string
		epoch uint64
	}{{"the counter", e.Counter.Value}, {"the lease's record", e.Recorded}, {"what the audit log knows", e.Logged}} {
		if known.epoch > n {
			who = append(who, fmt.Sprintf("%s (%d)", known.name, known.epoch))
		}
	}
	return strings.Join(who, " and ")
}

// Repair is what SetEpoch is to do.
type Repair struct {
	Epoch  uint64     // what the counter is to say: the next owner gets one more. Less than 2^64-1.
	Reason string     // of the person, for the audit log. Required.
	Force  bool       // let old epochs come again
	Log    *audit.Log // nil: the user's own
}

const setEpoch = "set epoch of"

// Epochs looks at what is known of a lease's epochs. It writes nothing and takes no lock. Errors match ErrBadID, or
// come from looking at the directory; an audit log that cannot be read is told in LogErr.
func (s *Store) Epochs(id string, log *audit.Log) (Epochs, error) {
	info, err := s.Inspect(id)
	if err != nil {
		return Epochs{}, err
	}
	return epochs(info.Facts, log), nil
}

func epochs(f *verdict.LeaseFacts, log *audit.Log) Epochs {
	e := Epochs{ID: f.ID, Path: f.Path, Counter: f.Counter, Problem: f.Problem}
	if f.Record != nil {
		e.Recorded = f.Record.Epoch
	}
	e.Next, e.Refusal = f.NextEpoch()
	if e.Logged, e.LogLines, e.LogErr = log.Highest(f.Path); e.LogErr != nil {
		e.LogErr = fmt.Errorf("%w: %w", ErrAudit, e.LogErr)
	}
	return e
}

// SetEpoch sets the epoch counter of a lease, whatever stands there, but for a directory. It is refused below the
// counter, the record's epoch and the highest epoch that the audit log knows, unless r.Force says that old epochs may
// come again. In the critical section it writes the audit log first, then the counter, both durable; a crash between
// the two leaves an entry of what was not done. It returns what was known before. The lease itself is left alone.
//
// ctx bounds the wait for the critical section, 5 s where it has no deadline. Errors match ErrBadID, ErrReadOnly,
// ErrNoReason, ErrEpochBelow, ErrAudit, ErrEpoch (2^64-1, after which there is no epoch) or ErrBusy, or are the
// system's; the counter is unchanged then, unless forcing its name to the disk was what went wrong.
func (s *Store) SetEpoch(ctx context.Context, id string, r Repair) (Epochs, error) {
	const op = setEpoch
	if err := checkID(op, id); err != nil {
		return Epochs{}, err
	}
	counter := s.path(id, counterSuffix)
	switch {
	case s.ReadOnly:
		return Epochs{}, refusedReadOnly(op, id)
	case strings.TrimSpace(r.Reason) == "":
		return Epochs{}, &IOError{Op: op, ID: id, Path: counter, Err: ErrNoReason}
	case r.Epoch == math.MaxUint64:
		return Epochs{}, &EpochError{Op: op, ID: id, Path: counter, Reason: "after 2^64-1 there is no next epoch"}
	}
	leave, err := s.enter(ctx, op, id, enterLimit)
	if err != nil {
		return Epochs{}, err
	}
	defer leave()

	facts, _ := s.gather(s.table(), id)
	was := epochs(facts, r.Log)
	if was.LogErr != nil {
		// Nobody would know of the repair, and whether it goes back cannot be told.
		return was, &IOError{Op: op, ID: id, Path: counter, Err: was.LogErr}
	}
	if err := was.Below(r.Epoch); err != nil && !r.Force {
		return was, err
	}
	entry := audit.Entry{
		Action: audit.ActionEpoch, Kind: "lease", Path: facts.Path, ID: id, Reason: r.Reason,
		EpochOld: max(was.Counter.Value, was.Recorded), EpochNew: r.Epoch,
	}
	if facts.Record != nil {
		entry.Nonce = facts.Record.ClaimID
	}
	if entry.Before, entry.Found, err = standing(counter); err == nil {
		err = s.at("judged")
	}
	if err == nil {
		if err = r.Log.Append(entry); err != nil {
			err = fmt.Errorf("%w: %w", ErrAudit, err)
		}
	}
	if err == nil {
		if err = s.at("audited"); err == nil {
			err = record.Replace(counter, record.EncodeCounter(r.Epoch), record.ReplaceOptions{Sync: true, SyncDir: true})
		}
		if err != nil && readCounter(counter).Value != r.Epoch {
			s.outcome(entry, r.Log, err)
		}
	}
	if err != nil {
		return was, &IOError{Op: op, ID: id, Path: counter, Err: err}
	}
	s.log().Warn("epoch counter set", slog.String("id", id), slog.String("path", counter),
		slog.Uint64("epoch", r.Epoch), slog.Uint64("highest", was.Highest()))
	return was, nil
}

// standing is what a repair replaces: bytes, or in words what cannot be read. A directory is not replaced.
func standing(path string) (before []byte, found string, err error) {
	if st, err := os.Lstat(path); err == nil && st.IsDir() {
		return nil, "", &fs.PathError{Op: "replace", Path: path, Err: syscall.EISDIR}
	}
	file, err := record.Read(path)
	switch e, unreadable := errors.AsType[*record.Error](err); {
	case err == nil:
		return append([]byte{}, file.Data...), "", nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, "", nil
	case unreadable:
		return nil, e.Detail, nil
	default:
		return nil, "", err
	}
}
