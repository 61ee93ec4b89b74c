package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/lease"
)

// repairing is `epoch`.
type repairing struct {
	*app
	repair lease.Repair
	dryRun bool
}

// What `epoch --json` prints, one line. Keys that do not apply are left out.
type (
	jsonEpoch struct {
		Schema       int         `json:"schema"`
		ID           string      `json:"id"`
		Path         string      `json:"path"` // of the lease, whether or not it is there
		PathB64      string      `json:"path_b64,omitempty"`
		Counter      jsonCounter `json:"counter"`
		LeaseProblem string      `json:"lease_problem,omitempty"`
		Recorded     uint64      `json:"recorded,omitempty"` // 0: the record tells none, likewise the next two
		Logged       uint64      `json:"logged,omitempty"`
		Highest      uint64      `json:"highest,omitempty"` // of the three
		Next         uint64      `json:"next,omitempty"`
		Blocked      string      `json:"blocked,omitempty"` // why there is no next epoch
		AuditLog     string      `json:"audit_log,omitempty"`
		AuditErrors  []string    `json:"audit_errors,omitempty"`
		Set          *jsonSet    `json:"set,omitempty"` // what else stands here is from before it
	}
	jsonCounter struct {
		Path    string  `json:"path"`
		PathB64 string  `json:"path_b64,omitempty"`
		Value   *uint64 `json:"value,omitempty"`
		Missing bool    `json:"missing,omitempty"`
		Problem string  `json:"problem,omitempty"`
	}
	jsonSet struct {
		Epoch   uint64 `json:"epoch"`
		Next    uint64 `json:"next,omitempty"`
		Reason  string `json:"reason"`
		Force   bool   `json:"force,omitempty"`
		Done    bool   `json:"done"`
		Refused string `json:"refused,omitempty"`
	}
)

func (a *app) epochCommand() *cobra.Command {
	r := &repairing{app: a}
	var set string
	cmd := &cobra.Command{
		Use:   "epoch ID [--set N --reason TEXT]",
		Short: "Show or repair the epoch counter of a lease",
		Long: "Without --set it shows what is known of the lease's epochs: the counter, the record, and the audit log; and\n" +
			"the epoch that the next owner gets, or why none is given out (exit 8). With --set it writes the counter: the next\n" +
			"owner gets one more than N. A counter that goes back would let old epochs come again, so that whoever still works\n" +
			"under one could pass for an owner of today: that is refused (exit 2) without --force. The audit log is written first.",
		Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("set") {
				for _, flag := range []string{"reason", "force", "dry-run"} {
					if cmd.Flags().Changed(flag) {
						return usage("--%s goes with --set", flag)
					}
				}
				return r.show(cmd.Context(), args[0])
			}
			var err error
			if r.repair.Epoch, err = parseEpoch(set); err != nil {
				return err
			}
			if strings.TrimSpace(r.repair.Reason) == "" {
				return &problem{
					code: codeUsage, err: errors.New("--set wants --reason TEXT"),
					hint: "It goes into the audit log, for whoever asks later why the counter is what it is.",
				}
			}
			return r.set(cmd.Context(), args[0])
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&set, "set", "", "what the counter is to say: the next owner gets one more")
	flags.StringVar(&r.repair.Reason, "reason", "", "why, for the audit log (with --set)")
	flags.BoolVar(&r.repair.Force, "force", false, "let old epochs come again (with --set)")
	flags.BoolVar(&r.dryRun, "dry-run", false, "print the plan only (with --set)")
	return cmd
}

// parseEpoch takes decimal numbers only: in 010 another base could be seen.
func parseEpoch(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	switch {
	case err != nil:
		return 0, usage("--set is a whole number from 0 to %d, not %q", uint64(math.MaxUint64-1), s)
	case n == math.MaxUint64:
		return 0, usage("--set %s would leave no next epoch", s)
	}
	return n, nil
}

// leases is a store without a log: what happens is told once.
func (r *repairing) leases(place spot) *lease.Store {
	return &lease.Store{Dir: place.dir, ReadOnly: r.readOnly}
}

// look finds the lease and what is known of its epochs.
func (r *repairing) look(ctx context.Context, arg string) (spot, lease.Epochs, error) {
	place, err := r.lookUp(ctx, arg)
	if err != nil {
		return place, lease.Epochs{}, err
	}
	known, err := r.leases(place).Epochs(place.id, r.repair.Log)
	if errors.Is(err, fs.ErrNotExist) {
		return place, known, &problem{
			code: codeFailed, err: err, hint: "No lease was ever claimed there: the first claim makes that directory. --root names another place.",
		}
	}
	return place, known, failed(err)
}

func (r *repairing) show(ctx context.Context, arg string) error {
	place, known, err := r.look(ctx, arg)
	if err != nil {
		return err
	}
	if !place.found {
		return failed(fmt.Errorf("there is no lease, counter or flock file of %s in %s", place.id, place.dir))
	}
	err = r.print(func(w io.Writer) {
		if r.json {
			writeJSON(w, r.encode(&known))
			return
		}
		r.tellKnown(w, &known)
	})
	if err != nil {
		return err
	}
	if known.Refusal != "" {
		return exit(codeBlocked)
	}
	return nil
}

// line prints one fact.
func (a *app) line(w io.Writer, head, format string, args ...any) {
	st := a.style()
	fmt.Fprintf(w, "  %s %s\n", st.Pad(head, 10), st.Safe(fmt.Sprintf(format, args...)))
}

func (r *repairing) tellKnown(w io.Writer, known *lease.Epochs) {
	fmt.Fprintf(w, "epochs of %s\n", r.style().Safe(known.ID))
	switch c := &known.Counter; {
	case c.Problem != nil:
		r.line(w, "counter", "damaged: %s (%s)", c.Problem.Detail, c.Path)
	case c.Missing:
		r.line(w, "counter", "missing (%s)", c.Path)
	default:
		r.line(w, "counter", "%d (%s)", c.Value, c.Path)
	}
	switch {
	case known.Recorded > 0:
		r.line(w, "record", "%d (%s)", known.Recorded, known.Path)
	case known.Problem != nil:
		r.line(w, "record", "unreadable: %s (%s)", cmp.Or(known.Problem.Detail, string(known.Problem.Problem)), known.Path)
	default:
		r.line(w, "record", "none tells an epoch (%s)", known.Path)
	}
	log := r.logFile()
	switch {
	case known.LogErr != nil:
		r.line(w, "audit log", "cannot be read: %s", logProblem(known.LogErr))
	case known.Logged > 0:
		r.line(w, "audit log", "%d (%s)", known.Logged, log)
	default:
		r.line(w, "audit log", "tells of none (%s)", log)
	}
	for _, bad := range known.LogLines {
		r.line(w, "", "line %d is no entry: %s", bad.Line, bad.Reason)
	}
	switch {
	case known.Refusal != "":
		r.line(w, "next", "none: %s", known.Refusal)
	case known.Next <= known.Logged:
		r.line(w, "next", "%d, which the audit log says was given out before: old epochs can come again", known.Next)
	default:
		r.line(w, "next", "%d", known.Next)
	}
	switch high := known.Highest(); {
	case isDirectory(&known.Counter):
		r.line(w, "repair", "%s", moveAway(known.Counter.Path))
		r.line(w, "", "then `%s`", r.onID("epoch", known.ID))
	case high == math.MaxUint64:
		r.line(w, "repair", "only a lower counter gives a next epoch: --set N --reason TEXT --force")
	case known.Refusal != "" && high == 0:
		r.line(w, "repair", "--set N --reason TEXT, with N no lower than any epoch that anybody remembers")
	case known.Refusal != "", known.Next <= known.Logged:
		r.line(w, "repair", "--set %d --reason TEXT, or higher", high)
	}
}

// logProblem is why the audit log cannot be read, without what follows from that.
func logProblem(err error) string {
	return strings.TrimPrefix(err.Error(), lease.ErrAudit.Error()+": ")
}

func (r *repairing) logFile() string {
	path, err := r.repair.Log.File()
	if err != nil {
		return "no place"
	}
	return path
}

func (r *repairing) set(ctx context.Context, arg string) error {
	place, known, err := r.look(ctx, arg)
	switch {
	case err != nil:
		return err
	case r.readOnly && !r.dryRun:
		return refused("epoch", place.id)
	case known.LogErr != nil:
		return r.refuse(known, fmt.Errorf("set epoch of lease %s: %w", place.id, known.LogErr))
	}
	if info, err := r.leases(place).Look(place.id); err == nil && info.Facts.Section != nil {
		p := &problem{code: codeBlocked, hint: moveFlockFile, err: fmt.Errorf("set epoch of %s: blocked. Its flock file is %s (%s)",
			place.id, info.Facts.Section.Detail, info.Facts.Section.Path)}
		return r.refuse(known, p)
	}
	if isDirectory(&known.Counter) {
		return r.refuse(known, &lease.EpochError{
			Op: "set epoch of", ID: place.id, Path: known.Counter.Path, Reason: "a directory is in its place, which is not written over",
		})
	}
	if below := known.Below(r.repair.Epoch); below != nil && !r.repair.Force {
		return r.refuse(known, below)
	}
	if !r.json {
		// A plan that cannot be told is not carried out.
		if err := r.print(func(w io.Writer) { r.tellPlan(w, place, &known) }); err != nil {
			return err
		}
	}
	if !r.dryRun {
		limited, cancel := r.bounded(ctx)
		defer cancel()
		was, err := r.leases(place).SetEpoch(limited, place.id, r.repair)
		if err != nil {
			if was.ID == "" {
				was = known
			}
			err = r.refuse(was, err)
			if p, ok := errors.AsType[*problem](err); ok && limited.Err() != nil {
				p.code = codeTimedOut
			}
			return err
		}
		known = was
	}
	return r.print(func(w io.Writer) {
		switch {
		case r.json:
			j := r.encode(&known)
			j.Set = r.encodeSet(&known)
			j.Set.Done = !r.dryRun
			writeJSON(w, j)
		case r.dryRun:
			fmt.Fprintln(w, "nothing was written (--dry-run)")
		default:
			fmt.Fprintf(w, "set the epoch counter of %s to %d\n", r.style().Safe(place.id), r.repair.Epoch)
		}
	})
}

func (r *repairing) tellPlan(w io.Writer, place spot, known *lease.Epochs) {
	n := r.repair.Epoch
	fmt.Fprintf(w, "plan: set the epoch counter of %s to %d\n", r.style().Safe(place.id), n)
	switch c := &known.Counter; {
	case !place.found:
		r.line(w, "counter", "missing, and so are the lease and its flock file: is that the right ID?")
	case c.Problem != nil:
		r.line(w, "counter", "damaged: %s", c.Problem.Detail)
	case c.Missing:
		r.line(w, "counter", "missing")
	default:
		r.line(w, "counter", "%d", c.Value)
	}
	switch high := known.Highest(); {
	case n < high:
		r.line(w, "forced", "%d is below %d, the highest epoch that is known: old epochs can come again", n, high)
	case high > 0:
		r.line(w, "compared", "%d is not below %d, the highest epoch that counter, record or audit log know", n, high)
	default:
		r.line(w, "compared", "with nothing: neither counter nor record nor audit log know an epoch")
	}
	r.line(w, "first", "a line in %s: who, why, and what the counter was", r.logFile())
	r.line(w, "then", "%s is replaced, in the lease's critical section", known.Counter.Path)
	if next := nextAfter(known, n); next != 0 {
		r.line(w, "after it", "the next owner gets %d", next)
	} else {
		r.line(w, "after it", "the next owner gets none: the lease's record is at the highest epoch there is")
	}
}

// nextAfter is the epoch that the next owner gets when the counter says n: a record that is ahead counts, too. 0: none.
func nextAfter(known *lease.Epochs, n uint64) uint64 { return max(known.Recorded, n) + 1 }

// refuse says why the counter is what it was.
func (r *repairing) refuse(known lease.Epochs, err error) error {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		p = r.refusal(err)
	}
	switch {
	case ok:
	case errors.Is(err, lease.ErrEpochBelow):
		p.code = codeUsage
		p.hint = "With --force it is set all the same, and old epochs can come again."
	case isDirectory(&known.Counter):
		p.hint = moveAway(known.Counter.Path)
	case errors.Is(err, lease.ErrAudit):
		p.hint = "Nothing was changed: a repair that nobody can look up later is not made."
	}
	if r.json {
		j := r.encode(&known)
		j.Set = r.encodeSet(&known)
		j.Set.Refused = err.Error()
		_ = r.print(func(w io.Writer) { writeJSON(w, j) }) // the exit code tells it to whoever does not read
	}
	return p
}

func (r *repairing) encodeSet(known *lease.Epochs) *jsonSet {
	n := r.repair.Epoch
	return &jsonSet{Epoch: n, Next: nextAfter(known, n), Reason: r.repair.Reason, Force: r.repair.Force}
}

func (r *repairing) encode(known *lease.Epochs) jsonEpoch {
	c := &known.Counter
	j := jsonEpoch{
		Schema: schema, ID: known.ID, Path: known.Path, PathB64: inexact(known.Path),
		Counter:  jsonCounter{Path: c.Path, PathB64: inexact(c.Path), Missing: c.Missing},
		Recorded: known.Recorded, Logged: known.Logged, Highest: known.Highest(), Next: known.Next, Blocked: known.Refusal,
	}
	j.AuditLog, _ = r.repair.Log.File() // why there is none is in LogErr
	switch {
	case c.Problem != nil:
		j.Counter.Problem = c.Problem.Detail
	case !c.Missing:
		j.Counter.Value = &c.Value
	}
	if known.Problem != nil {
		j.LeaseProblem = known.Problem.Error()
	}
	if known.LogErr != nil {
		j.AuditErrors = append(j.AuditErrors, logProblem(known.LogErr))
	}
	for _, bad := range known.LogLines {
		j.AuditErrors = append(j.AuditErrors, bad.Error())
	}
	return j
}
