package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/fslock"
	"holdfast/fslock/audit"
	"holdfast/fslock/proc"
	"holdfast/fslock/record"
	"holdfast/fslock/verdict"
	"holdfast/lease"
	"holdfast/sweep"
	"holdfast/watch"
)

// breaking is `break`.
type breaking struct {
	*app
	expect  string
	yes     bool
	force   bool
	reason  string
	dryRun  bool
	undo    bool
	observe span
	log     *audit.Log // nil: the user's own
}

// What a plan can want before it is carried out.
const (
	needsYes   = "yes"
	needsForce = "force"
)

// breakPlan is what a break would do to what was seen.
type breakPlan struct {
	target target
	seen   *sighting
	name   string   // what a person knows it by; "": only by its path or id
	nonce  string   // claim id or writer epoch; "": the record has none
	sum    string   // sha256:HEX of the file's bytes; "": not read
	needs  string   // needsYes or needsForce; "": it cannot be broken
	never  *problem // why it cannot be broken, whatever is ordered; nil: it can
	dies   []string // what becomes of whoever has it
	run    string   // the command that carries it out; "": none does
	repair string   // the command that has to come first; "": none
}

// What `break --json` prints, one line. Keys that do not apply are left out.
type jsonBreak struct {
	Schema   int       `json:"schema"`
	Action   string    `json:"action"` // break; undo has its own
	Entry    jsonEntry `json:"entry"`
	Nonce    string    `json:"nonce,omitempty"`
	SHA256   string    `json:"sha256,omitempty"` // of the file's bytes
	Needs    string    `json:"needs,omitempty"`  // yes, force
	Removes  string    `json:"removes,omitempty"`
	Dies     []string  `json:"dies"`
	AuditLog string    `json:"audit_log,omitempty"`
	Command  string    `json:"command,omitempty"` // that carries it out
	Repair   string    `json:"repair,omitempty"`  // the command that has to come first
	Expect   string    `json:"expect,omitempty"`
	Force    bool      `json:"force,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Done     bool      `json:"done"`
	Refused  string    `json:"refused,omitempty"`
}

func (a *app) breakCommand() *cobra.Command {
	b := &breaking{app: a}
	cmd := &cobra.Command{
		Use:   "break PATH|ID --expect NONCE (--yes | --force --reason TEXT)",
		Short: "Take a lease, lock or token from whoever has it; the plan first",
		Long: "Removes somebody else's lease, lock or reclaim token. It prints the plan first: what is there, what is compared,\n" +
			"what is removed, who dies, and the command that carries it out. Without --yes or --force that is all (exit 2).\n" +
			"What any contender may take wants --yes; all else wants --force --reason TEXT. NONCE is the claim id or writer\n" +
			"epoch that the plan shows, or sha256:HEX of the file's bytes where there is none: if something else is there\n" +
			"by now, nothing is done (exit 6).\n\n" +
			"The audit log is written first, with the bytes that go. --undo puts back those of the last break, and of no older\n" +
			"one: a lease while nobody was granted it since, a lock if nobody has its name and its holder is not alive.\n\n" +
			"Other exit codes: 1 nothing is there, 3 held (--undo), 7 not to be read, 8 blocked by a token or by a process.",
		Args: oneTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := b.check(cmd); err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context()) // between two steps, not within one
			defer stop()
			ctx, cancel := b.bounded(ctx)
			defer cancel()
			if b.undo {
				return b.putBack(ctx, args[0])
			}
			return b.run(ctx, args[0])
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&b.expect, "expect", "", "claim id or writer epoch of what is to be broken, or sha256:HEX of its bytes")
	flags.BoolVar(&b.yes, "yes", false, "break what any contender may take")
	flags.BoolVar(&b.force, "force", false, "break whatever it is (with --reason)")
	flags.StringVar(&b.reason, "reason", "", "why, for the audit log")
	flags.BoolVar(&b.dryRun, "dry-run", false, "print the plan only")
	flags.BoolVar(&b.undo, "undo", false, "put back what the last break of it removed, once, from the audit log")
	flags.Var(&b.observe, "observe", observeUsage)
	return cmd
}

func oneTarget(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage("a PATH or an ID is wanted, not %d arguments", len(args))
	}
	return nil
}

// check refuses flags that do not go together.
func (b *breaking) check(cmd *cobra.Command) error {
	given := func(flag string) bool { return cmd.Flags().Changed(flag) }
	if b.undo {
		for _, flag := range []string{"expect", "yes", "force", "observe"} {
			if given(flag) {
				return usage("--%s does not go with --undo, which compares by itself and asks nothing", flag)
			}
		}
		return nil
	}
	switch {
	case b.yes && b.force:
		return usage("only one of --yes and --force is wanted")
	case b.force && strings.TrimSpace(b.reason) == "":
		return &problem{
			code: codeUsage, err: errors.New("--force wants --reason TEXT"),
			hint: "It goes into the audit log, for whoever asks later who took it and why.",
		}
	case given("expect") && b.expect == "":
		return usage("--expect is empty")
	}
	if sum, isSum := strings.CutPrefix(b.expect, sumPrefix); isSum {
		if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
			return usage("--expect sha256: wants 64 hexadecimal digits after it, not %q", sum)
		}
	}
	return nil
}

const sumPrefix = "sha256:"

func (b *breaking) run(ctx context.Context, arg string) error {
	t, err := b.target(ctx, arg)
	if err != nil {
		return err
	}
	if err := breakable(&t); err != nil {
		return err
	}
	sight := b.sight()
	seen, err := sight.look(&t)
	if err == nil && b.observe.d > 0 && !seen.missing() {
		first := seen
		err = b.app.observe(ctx, b.observe.d, func() (done bool, err error) {
			if seen, err = sight.look(&t); err != nil {
				return true, err
			}
			return changed(&first.Entry, &seen.Entry), nil
		})
	}
	switch {
	case ctx.Err() != nil:
		return endedBy(ctx)
	case err != nil:
		return b.refusal(err)
	}
	if err := noEntry(&t, seen); err != nil {
		return err
	}
	p := b.plan(ctx, sight, t, seen)
	if !b.json {
		// A plan that cannot be told is not carried out.
		if err := b.print(func(w io.Writer) { b.tellPlan(w, p) }); err != nil {
			return err
		}
	}
	if refused := b.refuse(p); refused != nil {
		return b.notDone(p, refused)
	}
	if b.dryRun {
		return b.finish(p, "nothing was removed (--dry-run)", false)
	}
	if err := b.carryOut(ctx, sight, p); err != nil {
		return b.notDone(p, b.inTime(ctx, b.breakRefusal(err)))
	}
	return b.finish(p, "broke "+p.target.String(), true)
}

// inTime is a refusal that tells of the signal, or of the time that was over, if that is its reason.
func (b *breaking) inTime(ctx context.Context, p *problem) *problem {
	if ctx.Err() == nil {
		return p
	}
	p.hint = ""
	if sig, ok := errors.AsType[*signalError](context.Cause(ctx)); ok {
		p.code, p.err = sig.code(), fmt.Errorf("%w: %w", sig, p.err)
		return p
	}
	p.code, p.err = codeTimedOut, fmt.Errorf("timed out after %s: %w", &b.timeout, p.err)
	return p
}

// breakable refuses what is no lease, lock or token of its own.
func breakable(t *target) error {
	switch {
	case t.kind == watch.Temp:
		return &problem{
			code: codeUsage, err: fmt.Errorf("%s is a temp file, which nobody waits for", t.path),
			hint: "`holdfast sweep --temps` shows whether it is litter, and removes it then.",
		}
	case !t.same:
		return usage("that file only belongs to the lease %s; what can be broken is %s", t.id, t.path)
	}
	return nil
}

// noEntry refuses a file that is neither by its name nor by what is in it a lock, lease or token: it is another
// program's, and whoever named it made a mistake.
func noEntry(t *target, seen *sighting) error {
	bad := seen.Seen().Problem
	switch {
	case seen.missing(), bad == nil, sweep.IsEntry(filepath.Base(t.path)), seen.token == nil && bad.Torn:
		return nil
	}
	return &problem{
		code: codeUsage, err: fmt.Errorf("%s is not a lock, lease or token", t.path),
		hint: "Neither its name nor what is in it is that of one: it is another program's file.",
	}
}

// plan says what a break would do, and what it wants for that.
func (b *breaking) plan(ctx context.Context, sight *sight, t target, seen *sighting) *breakPlan {
	p := &breakPlan{target: t, seen: seen}
	roots, err := b.roots(nil)
	if err == nil {
		p.name = nameOf(roots, t.path)
	}
	if p.name == "" && t.kind == watch.Lease {
		p.name = nameOf([]watch.Root{{Path: filepath.Dir(t.path)}}, t.path)
	}
	seen.Name = p.name
	if h := seen.Holder(); h != nil {
		p.nonce = h.ClaimID + h.WriterEpoch // a record has one of them
	}
	if seen.Raw != nil {
		sum := sha256.Sum256(seen.Raw)
		p.sum = sumPrefix + hex.EncodeToString(sum[:])
	}
	if p.never = b.never(p); p.never != nil {
		return p
	}
	p.needs = needsForce
	switch {
	case seen.token != nil:
		// Where its name is not that of a lock's no attempt is to be expected.
		if sweep.LockOf(t.path) != "" && !seen.token.Facts.Blocks(seen.token.Facts.Look) {
			p.needs = needsYes
		}
	case seen.lock != nil:
		// A token that blocks was told above; the one of somebody who is removing it at this moment is no reason for force.
		facts := *seen.lock.Facts
		facts.Token = nil
		if facts.Glance(facts.Look).Claimable.When == verdict.Now {
			p.needs = needsYes
		}
	case seen.Verdict.Claimable.When == verdict.Now:
		p.needs = needsYes
	}
	p.run = b.verbOn("break", &t, "--expect "+verdict.Quote(p.expected()), p.wants())
	p.dies = b.dies(ctx, sight, p)
	return p
}

// expected is what --expect has to say of it.
func (p *breakPlan) expected() string {
	if p.nonce == "" || strings.HasPrefix(p.nonce, sumPrefix) || strings.ContainsRune(p.nonce, 0) {
		return p.sum // no argument has a NUL in it
	}
	return p.nonce
}

// never is why it cannot be broken, whatever is ordered.
func (b *breaking) never(p *breakPlan) *problem {
	seen := p.seen
	switch facts := seen.Seen(); {
	case facts.Missing:
		never := &problem{code: codeFailed, err: fmt.Errorf("there is nothing to break: no %s", &p.target)}
		if b.expect != "" {
			never.code = codeLost
		}
		if t := seen.Token; t != nil {
			never.hint = "A token lies beside it. " + breakToken(t)
		}
		return never
	case denied(facts):
		return &problem{
			code: codeUnreadable, hint: whoMayRead,
			err: fmt.Errorf("%s cannot be broken: %s", &p.target, strings.TrimSuffix(seen.Verdict.Sentence, ".")),
		}
	case facts.Problem != nil && facts.Problem.Problem != record.Malformed:
		return &problem{
			code: codeUnreadable, err: fmt.Errorf("%s cannot be broken: %s", &p.target, strings.TrimSuffix(seen.Verdict.Sentence, ".")),
			hint: "What is no file that can be read is compared with nothing, so it is not removed: a person must look at it.",
		}
	}
	switch {
	case seen.lock != nil && blocks(seen.lock.Facts.Token):
		token := seen.lock.Facts.Token
		return &problem{
			code: codeBlocked, hint: breakToken(seen.Token),
			err: fmt.Errorf("%s is blocked by a token: %s", &p.target, strings.Trim(strings.TrimPrefix(token.Judge(token.Look).Sentence, "Token "), ".")),
		}
	case seen.lease == nil:
	case seen.lease.Facts.BadID != "":
		return &problem{code: codeUsage, err: lease.CheckID(p.target.id)}
	case seen.lease.Facts.Section != nil || slices.ContainsFunc(seen.lease.Facts.Inside, func(h proc.FlockHolder) bool { return h.Stopped }):
		return &problem{
			code: codeBlocked, err: fmt.Errorf("%s is blocked by %s", &p.target, seen.Verdict.Claimable.By),
			hint: "`" + b.verbOn("why", &p.target) + "` tells more.",
		}
	default:
		return b.neverLease(p)
	}
	return nil
}

// neverLease is what its epoch counter has against the removal of a lease.
func (b *breaking) neverLease(p *breakPlan) *problem {
	facts := p.seen.lease.Facts
	switch c := &facts.Counter; {
	case facts.Record == nil && c.Missing:
		p.repair = b.onID("epoch", p.target.id, "--set N", "--reason TEXT")
		if b.root == "" && p.target.arg != p.target.id {
			p.repair = verdict.With(p.repair, "--root "+verdict.Quote(filepath.Dir(p.target.path)))
		}
		return &problem{
			code: codeBlocked, err: fmt.Errorf("%s is blocked: its epoch counter is missing, so that nothing would be left to tell an epoch, "+
				"and old ones could come again", &p.target),
			hint: "`" + p.repair + "` has to come first, with N no lower than any epoch that anybody remembers.",
		}
	case facts.Record != nil && facts.Record.Epoch > c.Value && isDirectory(c):
		return &problem{
			code: codeBlocked, err: fmt.Errorf("%s is blocked: its epoch has to be kept first, and a directory is in the counter's place (%s)",
				&p.target, c.Path),
			hint: moveAway(c.Path),
		}
	}
	return nil
}

// isDirectory reports whether a directory is in the counter's place, which no counter can be written over.
func isDirectory(c *verdict.Counter) bool {
	return c.Problem != nil && isDir(c.Path)
}

func moveAway(path string) string {
	return "Look at what is in it, then move it away: `mv " + verdict.Quote(path) + " " + verdict.Quote(path+".old") + "`."
}

// blocks reports whether the token is in the way of a removal. One that was made under a guard may be stale, which
// only whoever has the guard can tell.
func blocks(t *verdict.TokenFacts) bool {
	return t != nil && t.Blocks(t.Look) && (t.Record == nil || t.Record.Ours.Guard == nil)
}

// refuse is why the plan is not carried out as it was ordered; nil: it is.
func (b *breaking) refuse(p *breakPlan) *problem {
	switch {
	case b.expect != "" && p.sum != "" && !p.isExpected(b.expect):
		return &problem{
			code: codeLost, err: fmt.Errorf("%s is not %s any more: it is %s", &p.target, b.expect, p.identity()),
			hint: "Nothing was removed. `" + b.verbOn("why", &p.target) + "` tells what is there.",
		}
	case p.never != nil:
		return p.never
	case b.dryRun && !b.yes && !b.force:
		return nil
	case !b.yes && !b.force:
		return &problem{code: codeUsage, err: fmt.Errorf("%s was not broken: that wants %s", &p.target, p.wants())}
	case b.yes && p.needs == needsForce:
		return &problem{
			code: codeUsage,
			err:  fmt.Errorf("%s was not broken: no contender would take it now, so --yes is not enough; it wants %s", &p.target, p.wants()),
		}
	case b.expect == "":
		return &problem{
			code: codeUsage, err: fmt.Errorf("%s was not broken: --expect is wanted, so that nothing else is broken in its place", &p.target),
		}
	case b.readOnly && !b.dryRun:
		op, _ := errors.AsType[*problem](refused("break", p.target.String()))
		return op
	}
	return nil
}

func (p *breakPlan) wants() string {
	if p.needs == needsForce {
		return "--force --reason TEXT"
	}
	return "--yes"
}

func (p *breakPlan) isExpected(expect string) bool {
	if strings.HasPrefix(expect, sumPrefix) {
		return strings.EqualFold(expect, p.sum)
	}
	return p.nonce != "" && expect == p.nonce
}

// identity names what is there as --expect would.
func (p *breakPlan) identity() string {
	if p.nonce == "" {
		return "without a nonce, " + p.sum
	}
	return p.nonce + ", " + p.sum
}

// carryOut does it. Whoever is judged by silence alone is watched first, as a contender does: that is told.
func (b *breaking) carryOut(ctx context.Context, sight *sight, p *breakPlan) error {
	seen := p.seen
	switch {
	case seen.lease != nil:
		return sight.store(filepath.Dir(seen.lease.Path)).Break(ctx, *seen.lease, lease.Removal{Reason: b.reason, Force: b.force, Log: b.log})
	case seen.token != nil:
		return sight.locker.RemoveToken(ctx, *seen.token, fslock.Removal{Reason: b.reason, Force: b.force, Log: b.log})
	}
	if seen.Verdict.State == verdict.Expired {
		fmt.Fprintln(b.Stderr, "holdfast: its holder cannot be seen from here, so it is watched first, 16s at most: three heartbeats")
	}
	return sight.locker.Break(ctx, *seen.lock, fslock.Removal{Reason: b.reason, Force: b.force, Log: b.log})
}

// breakRefusal says why a lease, lock or token was not removed or put back, with the code that goes with it.
func (b *breaking) breakRefusal(err error) *problem {
	p := &problem{code: codeFailed, err: err}
	switch {
	case errors.Is(err, fslock.ErrReadOnly), errors.Is(err, lease.ErrReadOnly), errors.Is(err, lease.ErrBadID):
		p.code = codeUsage
	case errors.Is(err, fslock.ErrAudit), errors.Is(err, lease.ErrAudit):
		p.hint = "Nothing was changed: what nobody can look up later is not done."
	case errors.Is(err, lease.ErrEpoch):
		return b.refusal(err)
	case sectionBlocked(err):
		return b.refusal(err)
	case errors.Is(err, fslock.ErrBlocked), errors.Is(err, lease.ErrBusy):
		p.code = codeBlocked
	case errors.Is(err, fslock.ErrChanged), errors.Is(err, lease.ErrChanged):
		p.code, p.hint = codeLost, "Nothing was changed. Look again before you act."
	case errors.Is(err, fslock.ErrNotYet), errors.Is(err, lease.ErrNotYet):
		p.code, p.hint = codeUsage, "It changed since the plan was made. With --force --reason TEXT it is broken all the same."
	case errors.Is(err, fslock.ErrHeld):
		p.code = codeHeld
	case errors.Is(err, fslock.ErrUnreadable), errors.Is(err, lease.ErrUnreadable):
		p.code = codeUnreadable
	}
	if e, ok := errors.AsType[*fslock.ConflictError](err); ok {
		c := *e
		c.Ended = nil // that it ran out of time is told once, with the time
		says := c.Error()
		if c.Left > 0 {
			says = fmt.Sprintf("%s %s: it must be watched unchanged for %v more", c.Op, c.Path, c.Left.Round(100*time.Millisecond))
		}
		p.err = b.inWords(says, c.Holder, err)
		if p.code == codeBlocked && c.Token != nil {
			p.hint = breakToken(c.Token)
		}
	} else if e, ok := errors.AsType[*lease.ConflictError](err); ok {
		says := e.Op + " lease " + e.ID + ": "
		if e.Reason != "" {
			says += e.Reason
		} else {
			says += e.Err.Error()
		}
		p.err = b.inWords(says+". "+e.Verdict.Sentence, e.Holder, err)
	}
	return p
}

// inWords is an error in a person's words, what a record says short.
func (b *breaking) inWords(says string, h *verdict.Holder, err error) error {
	return &refusal{strings.TrimRight(shortener(b.style(), h).Replace(says), ". "), err}
}

func breakToken(t *verdict.Token) string {
	return "`holdfast break " + verdict.Quote(t.Path) + "` shows the token, and how it goes."
}

// notDone ends the verb with a refusal.
func (b *breaking) notDone(p *breakPlan, refused *problem) error {
	if b.json {
		j := b.encode(p)
		j.Refused = refused.Error()
		_ = b.print(func(w io.Writer) { writeJSON(w, j) }) // the exit code tells it to whoever does not read
	}
	return refused
}

func (b *breaking) finish(p *breakPlan, says string, done bool) error {
	return b.print(func(w io.Writer) {
		if b.json {
			j := b.encode(p)
			j.Done = done
			writeJSON(w, j)
			return
		}
		fmt.Fprintln(w, b.style().Safe(says))
	})
}

func (b *breaking) encode(p *breakPlan) jsonBreak {
	enc := &encoder{seen: &watch.Snapshot{}, describe: describe}
	j := jsonBreak{
		Schema: schema, Action: audit.ActionBreak, Entry: enc.entry(&p.seen.Entry), Nonce: p.nonce, SHA256: p.sum, Needs: p.needs,
		Dies: append([]string{}, p.dies...), Command: p.run, Repair: p.repair, Expect: b.expect, Force: b.force, Reason: b.reason,
	}
	if p.never == nil {
		j.Removes = p.target.path
	}
	j.AuditLog, _ = b.log.File() // why there is no place for it is told when it is written
	return j
}
