package tui

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"holdfast/fslock/proc"
	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// Fact is a line of what is known of an entry: a head, and what is said of it. Without a head it stands itself at the
// head of those that follow. It is not made safe.
type Fact struct{ Head, Says string }

// skipped is the head of evidence that could not be had.
const skipped = "skipped"

// sentence is the verdict's, after when the entry was seen last where it cannot be looked at.
func sentence(e *watch.Entry, v verdict.Verdict, now time.Time) string {
	if e.Unseen.IsZero() {
		return v.Sentence
	}
	return "Last seen " + momentWords(e.Unseen, now) + ", cannot be looked at. It was then: " + v.Sentence
}

// clears is text.Clears, of what can be looked at. Where anybody could take a lock but for a token, it says whose that is.
func clears(e *watch.Entry, v verdict.Verdict, now time.Time) string {
	if !e.Unseen.IsZero() {
		return "nobody can tell: its place cannot be looked at"
	}
	taken := v.State == verdict.Dead || v.State == verdict.Expired
	if t := blockingToken(e, now); t != nil && t.Record != nil && taken && v.Claimable.When == verdict.Blocked && !v.Claimable.At.After(now) {
		return fmt.Sprintf("at the next attempt, but a token of pid %d on %s blocks it", t.Record.PID, cmp.Or(t.Record.Hostname, "an unknown host"))
	}
	return text.Clears(v, now)
}

// momentWords are a moment that has passed: the time, and the day where that is not today's.
func momentWords(at, now time.Time) string {
	at, now = at.Local(), now.Local()
	if at.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return at.Format("15:04")
	}
	return at.Format("2006-01-02 15:04")
}

// Facts are what is known at now of an entry of the snapshot, but for its state, its marks and the verdict's sentence:
// when it clears and what to do, who holds it, the evidence, what each original would do, and from where it was seen.
func Facts(s *watch.Snapshot, e *watch.Entry, now time.Time) []Fact {
	v := e.Judge(now)
	var facts []Fact
	add := func(head, format string, args ...any) {
		facts = append(facts, Fact{head, fmt.Sprintf(format, args...)})
	}
	if !e.Unseen.IsZero() {
		add("unseen", "since %s its place cannot be looked at: all this is what was seen there last", momentWords(e.Unseen, now))
	}
	if when := clears(e, v, now); when != "" {
		add("clears", "%s", when)
	}
	facts = append(facts, waitFacts(e)...)
	if f, ok := e.Subject.(*verdict.LockFacts); ok && f.Token != nil {
		add("token", "%s", strings.TrimSuffix(strings.TrimPrefix(f.Token.Judge(now).Sentence, "Token "), "."))
	}
	for _, command := range nextSteps(s, e, &v) {
		add("next", "%s", command)
	}
	if h := e.Holder(); h != nil {
		facts = append(facts, holderFacts(e, h, now)...)
	}
	add("", "why")
	for _, c := range v.Evidence {
		switch {
		case c.Skipped != "":
			add(skipped, "%s: %s", c.Name, c.Skipped)
		case c.Speaks == proc.Neither:
			add("saw", "%s: %s", c.Name, c.Saw)
		default:
			add(c.Speaks.String(), "%s: %s", c.Name, c.Saw)
		}
	}
	if len(v.Originals) > 0 {
		add("", "what each original would do now")
	}
	for _, o := range v.Originals {
		add(o.System, "%s", strings.TrimSuffix(o.Does+": "+o.Why, ": "))
	}
	add("", "where")
	for _, f := range flagWords {
		if v.Flags.Has(f.flag) {
			add("flag", "%s", f.says)
		}
	}
	add(e.Kind.String(), "%s", e.Path)
	for _, r := range s.Roots {
		if r.Path == e.Root {
			add("root", "%s (%s, chosen by %s, %s)", r.Path, r.Kind, r.ChosenBy, cmp.Or(r.FS, "file system unknown"))
		}
	}
	o := s.Observer
	from := fmt.Sprintf("%s, uid %d", cmp.Or(o.Host, "a machine without a name"), o.UID)
	if o.User != "" {
		from += " (" + o.User + ")"
	}
	if o.BootID != "" {
		from += ", boot " + o.BootID
	}
	if o.PIDNS != 0 {
		from += fmt.Sprintf(", pid namespace %d", o.PIDNS)
	}
	if o.InitialNS {
		from += " (the initial one)"
	}
	add("seen from", "%s", from)
	return facts
}

// holderFacts say whom the record names, unknown things too.
func holderFacts(e *watch.Entry, h *verdict.Holder, now time.Time) []Fact {
	who := fmt.Sprintf("pid %d on %s", h.PID, cmp.Or(h.Host, "an unknown host"))
	if !h.Acquired.IsZero() {
		who += fmt.Sprintf(", taken %s ago (%s)", text.Long(e.Held(now)), h.Acquired.Format(time.DateTime))
	}
	if beat := e.Beat(); !beat.IsZero() {
		who += fmt.Sprintf(", last heard of %s ago", text.Long(verdict.Age(beat, now)))
	}
	if e.Kind != watch.Lease {
		return []Fact{{"holder", who}, {"nonce", cmp.Or(h.WriterEpoch, "none: an older build wrote it")}}
	}
	channel := fmt.Sprintf("%s, version %s, epoch ", cmp.Or(h.Channel, "unknown"), cmp.Or(h.Version, "unknown"))
	if h.Epoch == 0 {
		channel += "unknown"
	} else {
		channel += fmt.Sprint(h.Epoch)
	}
	return []Fact{
		{"holder", who},
		{"channel", channel},
		{"owner", fmt.Sprintf("%s, block %s", cmp.Or(h.OwnerBootID, "unknown"), cmp.Or(h.BlockID, "unknown"))},
		{"claim id", cmp.Or(h.ClaimID, "unknown: an older build wrote it")},
	}
}

// flagWords are what the flags mean that the state does not tell.
var flagWords = []struct {
	flag verdict.Flag
	says string
}{
	{verdict.Clock, "clock: a stamp cannot be right; it is not trusted"},
	{verdict.Legacy, "legacy: alive by its pid alone; another process may have the number now"},
	{verdict.LongHeld, "held: for over ten minutes; a note, no alarm"},
	{verdict.EpochFlag, "epoch: its counter is damaged or behind the record"},
	{verdict.StoppedFlag, "stopped: its holder is stopped, and goes on with what it was doing when it continues"},
}
