package sweep

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"holdfast/fslock"
	"holdfast/fslock/audit"
)

// How long Maintain waits from the end of one run to the next.
const (
	sweepEvery = 24 * time.Hour
	retryEvery = time.Hour // after a run with errors
)

// Report is what a run did. A planned removal that is in none of the lists was not come to before the run's time was
// over.
type Report struct {
	Removed []Step       // what is gone now, in the order of the plan
	Kept    []Step       // what was planned to go and is not what the plan saw any more, or is gone; Why says so
	Errors  []PlaceError // the plan's, then what could not be removed
}

// Run removes what the plan says is to be removed, one after the other. Each is judged again, by the plan's own rules
// and by what is so then, and removed only if it is what the plan saw: where there is a record, by all but its
// heartbeat, else by its bytes. The audit log is written first. What was changed, was replaced or has gone meanwhile is
// no error: it is in Report.Kept. What cannot be removed is one of Report.Errors, and the rest goes on.
//
// The error is a *PlaceError that matches fslock.ErrReadOnly when the Locker is read-only, and then nothing was done;
// or it is the context's. A run takes a minute at most, and is over then with context.DeadlineExceeded. It does not
// look for anything that the plan does not name, and may be run again with the same plan.
func (s *Sweeper) Run(ctx context.Context, plan Plan) (Report, error) {
	report := Report{Errors: slices.Clone(plan.Errors)}
	locker := s.locker()
	if locker.ReadOnly {
		return report, &PlaceError{Path: s.Root, Err: fslock.ErrReadOnly}
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	busy := make(map[string]error) // by directory
	for _, step := range plan.Steps {
		if !step.Remove {
			continue
		}
		if err := ctx.Err(); err != nil {
			return report, err
		}
		dir := filepath.Dir(step.Path)
		err := busy[dir]
		if err == nil {
			err = s.remove(ctx, locker, step)
		}
		if err == nil {
			report.Removed = append(report.Removed, step)
			continue
		}
		if ended := ctx.Err(); ended != nil && (errors.Is(err, ended) || errors.Is(err, fslock.ErrBlocked)) {
			return report, ended // the wait for a guard was cut short: that says nothing of the guard
		}
		if why := stays(step.Path, err); why != "" {
			step.Remove, step.Why = false, why
			report.Kept = append(report.Kept, step)
			continue
		}
		if b, ok := errors.AsType[*fslock.BusyError](err); ok && filepath.Clean(b.Path) == dir {
			// One guard serves the directory: whoever waited for it for each of its tokens would have no time left for
			// the other directories.
			busy[dir] = err
		}
		report.Errors = append(report.Errors, PlaceError{Path: step.Path, Err: err})
	}
	return report, nil
}

// keptError is why a step is not taken after all.
type keptError struct{ why string }

func (e *keptError) Error() string { return e.why }

const gone = "It is gone by now."

var errNoStep = errors.New("no token or temp of a lock or lease, so a sweep does not touch it")

// remove takes one step of a plan.
func (s *Sweeper) remove(ctx context.Context, locker *fslock.Locker, step Step) error {
	removal := fslock.Removal{Reason: cmp.Or(s.Reason, "sweep"), Action: audit.ActionSweep, Log: s.Audit}
	name := filepath.Base(step.Path)
	_, token := tokenOf(name)
	_, temp := tempOf(name)
	switch {
	case token && step.Token != nil && step.Token.Path == step.Path:
		return locker.RemoveToken(ctx, *step.Token, removal)
	case temp && step.Temp != nil && step.Temp.Path == step.Path:
		// That a temp is a day old and open nowhere only a sweep asks: the locker removes any that is not in use.
		now := locker.InspectTemp(step.Path)
		if now.Facts.Missing {
			return &keptError{gone}
		}
		if again := s.planTemp(&now, s.table()); !again.Remove {
			return &keptError{again.Why}
		}
		return locker.RemoveTemp(ctx, *step.Temp, removal)
	}
	return errNoStep
}

// stays says why a file stays that is not what the plan saw any more; "": that is not the reason.
func stays(path string, err error) string {
	if kept, ok := errors.AsType[*keptError](err); ok {
		return kept.why
	}
	var why string
	switch {
	case errors.Is(err, fslock.ErrAudit):
		return "" // whatever is missing, or was changed, that is the log
	case errors.Is(err, fslock.ErrChanged):
		why = "It is not what the plan saw any more."
	case errors.Is(err, fslock.ErrNotYet), errors.Is(err, fslock.ErrHeld):
		why = "It is no litter any more."
	case !errors.Is(err, fs.ErrNotExist):
		return ""
	}
	if _, lerr := os.Lstat(path); errors.Is(lerr, fs.ErrNotExist) {
		return gone
	}
	if conflict, ok := errors.AsType[*fslock.ConflictError](err); ok && why != "" && conflict.Verdict.Sentence != "" {
		why += " " + conflict.Verdict.Sentence
	}
	return why
}

// Maintain plans and runs at once, then again 24 h after each run, or 1 h after one that had errors, until ctx is done.
// It blocks. The Locker logs what is removed at info; what failed is logged there at warn. The waits are counted by a
// clock that may stand while the machine sleeps.
func (s *Sweeper) Maintain(ctx context.Context) {
	for {
		wait := retryEvery
		if s.sweep(ctx) {
			wait = sweepEvery
		}
		next := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			next.Stop()
			return
		case <-next.C:
		}
	}
}

// sweep plans and runs once and reports whether all went well. A plan that was cut short is run as far as it goes.
func (s *Sweeper) sweep(ctx context.Context) bool {
	log := slog.New(slog.DiscardHandler)
	if s.Locker != nil && s.Locker.Log != nil {
		log = s.Locker.Log
	}
	log = log.With("root", s.Root)
	plan, err := s.Plan(ctx)
	report, rerr := s.Run(ctx, plan)
	if ctx.Err() != nil {
		return true // it was ended, it did not fail
	}
	for i := range report.Errors {
		log.Warn("sweep left out a place", "path", report.Errors[i].Path, "error", &report.Errors[i])
	}
	if err = errors.Join(err, rerr); err != nil {
		log.Warn("sweep failed", "error", err)
	}
	log.Debug("swept", "removed", len(report.Removed), "kept", len(report.Kept), "errors", len(report.Errors))
	return err == nil && len(report.Errors) == 0
}
