package tui

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"holdfast/fslock/verdict"
	"holdfast/tui/text"
	"holdfast/watch"
)

// actionIntents are what can be done with one entry, in the order in which they are listed.
func actionIntents() []intent {
	return []intent{
		intentClaim, intentAcquire, intentRelease, intentBreak, intentSweep, intentVerify, intentCopyPath, intentCopyNonce,
		intentCopyNext,
	}
}

// acting is how the keys that change something are told of; "": the intent changes nothing.
func acting(what intent) string {
	switch what {
	case intentClaim:
		return "C claims"
	case intentAcquire:
		return "A acquires"
	case intentRelease:
		return "R releases"
	case intentBreak:
		return "B breaks"
	case intentSweep:
		return "W sweeps"
	default:
		return ""
	}
}

// inert says why nothing at all can be changed now; "": it can.
func (m *model) inert() string {
	switch {
	case m.readOnly:
		return "this screen is read-only (RO): it changes nothing. Start it without --read-only to act."
	case m.paused:
		return "the picture is paused and may be old. p goes on."
	case m.stale():
		return "the picture is stale: it waits for a fresh look."
	default:
		return ""
	}
}

// inertWord is inert in a word, where it stands beside many keys.
func (m *model) inertWord() string {
	switch {
	case m.readOnly:
		return "read-only"
	case m.paused:
		return "paused"
	default:
		return "stale"
	}
}

// whyNotShort is whyNot for lists of keys: what is true of all that change something is one word there.
func (m *model) whyNotShort(what intent, r *row) string {
	if acting(what) != "" && m.inert() != "" {
		return m.inertWord()
	}
	return m.whyNot(what, r)
}

// whyNot says why an intent cannot be done with the entry of r now; "": it can. Keys, palette, footer and list of actions
// all ask here, so that none of them offers what another refuses.
func (m *model) whyNot(what intent, r *row) string {
	if acting(what) != "" {
		if why := m.inert(); why != "" {
			return why
		}
	}
	return m.whyNotHere(what, r)
}

// whyNotHere is the part of whyNot that is about the entry.
func (m *model) whyNotHere(what intent, r *row) string {
	switch {
	case what == intentSweep:
		return m.notSweepable()
	case r == nil:
		return "No entry is under the cursor."
	case acting(what) != "" && !r.entry.Unseen.IsZero():
		return m.notSeen(r)
	}
	switch what {
	case intentClaim:
		return m.notClaimable(r)
	case intentAcquire:
		return m.notAcquirable(r)
	case intentRelease:
		return m.notReleasable(r)
	case intentBreak:
		_, why := m.toBreak(r)
		return why
	case intentVerify:
		return m.notVerifiable(r)
	case intentCopyNonce:
		if nonceOf(r.entry) == "" {
			return r.name + " names no claim id or writer epoch."
		}
	case intentCopyNext:
		return m.noNextStep(r)
	default:
	}
	return ""
}

// notSeen says that what a row tells of is not to be acted on: nobody knows what is there now.
func (m *model) notSeen(r *row) string {
	return fmt.Sprintf("%s was last seen %s and cannot be looked at: nothing is changed unseen.", r.name, momentWords(r.entry.Unseen, m.now))
}

// refused complains when an intent cannot be done with the entry of r now.
func (m *model) refused(what intent, r *row) bool {
	if acts := acting(what); acts != "" && !m.mayAct(acts) {
		return true
	}
	why := m.whyNotHere(what, r)
	if why != "" {
		m.complain("%s", why)
	}
	return why != ""
}

// nonceOf is what tells one hold of an entry from the next, as its record names it; "": it names none.
func nonceOf(e *watch.Entry) string {
	h := e.Holder()
	switch {
	case h == nil:
		return ""
	case e.Kind == watch.Lease:
		return h.ClaimID
	default:
		return h.WriterEpoch
	}
}

// actionList is the open list of what can be done with one entry.
type actionList struct {
	about ref // what it was opened for; it goes when that is not under the cursor any more
	at    int
}

func (m *model) openActions() {
	if r := m.current(); r != nil {
		m.actions = &actionList{about: r.ref()}
		return
	}
	m.complain("No entry is under the cursor.")
}

// recheckActions closes the list when its entry is gone: its keys would be for another.
func (m *model) recheckActions() {
	if r := m.current(); r == nil || r.ref() != m.actions.about {
		m.actions = nil
		m.complain("The entry is not in the list any more: look again.")
	}
}

// chooseAction is what keys do while the list is open. What it does is what the same key does without it.
func (m *model) chooseAction(k keyPress) []command {
	if !k.single {
		m.sayChunk()
		return nil
	}
	list, what := actionIntents(), m.intentOf(k)
	switch what {
	case intentDown, intentUp, intentFirst, intentLast:
		m.actions.at, _ = scrolled(m.actions.at, what, 1, len(list)-1)
		return nil
	case intentBack, intentActions, intentQuit:
		m.actions = nil
		return nil
	case intentOpen:
		what = list[m.actions.at]
	default:
	}
	for _, listed := range list {
		if what == listed {
			m.actions = nil
			if what == intentBreak || what == intentRelease {
				m.dialog = m.planHere(what, m.current()) // whatever is marked: the list is this entry's
				return nil
			}
			return m.do(what)
		}
	}
	return nil
}

// overlayActions lays the list over the lower end of the body.
func (m *model) overlayActions(lines []string, r rect) []string {
	row := m.current()
	if row == nil {
		return lines
	}
	p := m.paint
	var lists, head []string
	if why := m.inert(); why != "" { // once, not with every key
		for _, part := range p.wrap(strings.ToUpper(why[:1])+why[1:], r.w-3) {
			head = append(head, p.line(r.w).put(plain, "  ").put(warn, part).String())
		}
	}
	end := 0 // of the chosen one, which alone is told whole
	for i, what := range actionIntents() {
		b, ok := m.bindingOf(what)
		if !ok {
			continue
		}
		says, verb, body, most := p.Safe(b.Help().Desc), strong, plain, 1
		switch why := p.Safe(m.whyNotShort(what, row)); {
		case len(m.marked) > 0 && (what == intentBreak || what == intentRelease) && m.inert() == "":
			says = m.markedWords() + ": this is for those"
		case why != "":
			says, verb, body = "no: "+why, faint, faint
		}
		mark := "  "
		if i == m.actions.at {
			mark, most = p.glyph(cursorGlyph)+" ", maxNoteLines
		}
		const from = 6 + verbWidth
		parts := p.wrap(says, r.w-from)
		if len(parts) > most {
			parts[most-1] = strings.Join(parts[most-1:], " ") // put cuts it
			parts = parts[:most]
		}
		for n, part := range parts {
			l := p.line(r.w)
			if n == 0 {
				l.put(strong, mark+b.Help().Key).put(plain, " ").to(6).cell(verb, b.verb, verbWidth)
			}
			lists = append(lists, l.to(from).put(body, part).String())
		}
		if i == m.actions.at {
			end = len(lists)
		}
	}
	room := max(1, r.h-1-len(head))
	top := max(0, min(end-room, len(lists)-room))
	box := append([]string{p.rule(r.w, "actions: "+row.name, "enter does it  esc close")}, head...)
	box = append(box, lists[top:min(len(lists), top+room)]...)
	return laidOver(lines, box, r.h)
}

// laidOver lays a box over the end of h lines.
func laidOver(lines, box []string, h int) []string {
	if len(box) > h {
		box = box[len(box)-h:]
	}
	return append(lines[:h-len(box)], box...)
}

// looked is what a fresh look at one entry showed.
type looked struct {
	plan  target // as it was shown when the look was asked for
	state verdict.State
	says  string // the verdict's sentence
	now   string // its fingerprint
	err   error
}

func (m *model) notVerifiable(r *row) string {
	switch {
	case r.entry.Kind == watch.Lease && storeOf(m.holds.store, r.entry.Path) == nil:
		return r.name + " cannot be looked at by itself: its directory is not known as one of leases."
	case r.entry.Kind != watch.Lease && m.holds.locker == nil:
		return r.name + " cannot be looked at by itself: this screen was given nothing to look with."
	default:
		return ""
	}
}

// verify has the entry under the cursor looked at afresh.
func (m *model) verify() []command {
	r := m.current()
	if m.refused(intentVerify, r) {
		return nil
	}
	m.say("Verifying %s.", r.name)
	plan, holds := targetOf(r.entry, m.now), m.holds
	return []command{{run: func(ctx context.Context) any {
		holds.check(ctx) // what this screen holds answers by its own nonce
		return holds.look(plan)
	}}}
}

// look looks at what a target names. It changes nothing.
func (h *holds) look(plan target) looked {
	path, l := plan.ref.path, looked{plan: plan}
	see := func(v verdict.Verdict, who *verdict.Holder, epoch uint64, raw []byte) {
		l.state, l.says, l.now = v.State, v.Sentence, fingerprint(v, who, epoch, raw)
	}
	switch plan.ref.kind {
	case watch.Lease:
		store := storeOf(h.store, path)
		if store == nil {
			l.err = errors.New("its directory is not known as one of leases")
			break
		}
		info, err := store.Look(plan.id)
		if l.err = err; err == nil {
			see(info.Verdict, info.Facts.Holder(), info.Epoch, info.Raw)
		}
	case watch.Lock:
		info := h.locker.Inspect(path)
		see(info.Verdict, info.Facts.Holder(), 0, info.Raw)
	case watch.Token:
		info := h.locker.InspectToken(path)
		see(info.Verdict, info.Facts.Holder(), 0, info.Raw)
	case watch.Temp:
		info := h.locker.InspectTemp(path)
		see(info.Verdict, info.Facts.Holder(), 0, info.Raw)
	}
	return l
}

// lookDone tells what a fresh look showed, and has the whole picture follow where it showed something else.
func (m *model) lookDone(l looked) []command {
	switch {
	case l.err != nil:
		m.complain("Not verified: %s: %v", l.plan.name, causeFirst(l.err))
	case l.now == l.plan.fingerprint:
		m.say("Verified at %s: %s is %s. %s", m.clock.Format(time.TimeOnly), l.plan.name, text.Word(l.state), l.says)
	default:
		m.say("Changed: %s is %s now. %s", l.plan.name, text.Word(l.state), l.says)
		if m.rescan != nil && !m.scanning {
			return m.startRescan()
		}
	}
	return nil
}

// rescanned is the end of a full look.
type rescanned struct {
	err  error
	took time.Duration
}

// askRescan has everything looked at again at once.
func (m *model) askRescan() []command {
	switch {
	case m.rescan == nil || m.ended:
		m.complain("Nothing looks again: the watcher has stopped, or this screen was given none that could be asked.")
		return nil
	case m.scanning:
		m.say("Everything is being looked at already.")
		return nil
	}
	m.say("Looking again at everything%s", m.paint.Ellipsis())
	m.scanTold = true
	return m.startRescan()
}

func (m *model) startRescan() []command {
	m.scanning = true
	rescan := m.rescan
	return []command{{run: func(ctx context.Context) any {
		begun := time.Now()
		err := rescan(ctx)
		return rescanned{err: err, took: time.Since(begun)}
	}}}
}

func (m *model) rescanDone(r rescanned) {
	told := m.scanTold
	m.scanning, m.scanTold = false, false
	switch {
	case !told:
	case r.err != nil:
		m.complain("Not looked at again: %v", causeFirst(r.err))
	case m.paused:
		m.say("Looked again at everything in %s; the picture stays paused. p goes on.", r.took.Round(time.Millisecond))
	default:
		m.say("Looked again at everything in %s.", r.took.Round(time.Millisecond))
	}
}

// findRow is the one row that a name stands for: an id, a decoded name, a path or its end.
func (m *model) findRow(name string) (at int, err error) {
	found := 0
	for i, r := range m.rows {
		e := r.entry
		if name == e.ID || name == e.Name || name == r.name || name == e.Path || strings.HasSuffix(e.Path, "/"+name) {
			at = i
			found++
		}
	}
	switch found {
	case 0:
		return 0, fmt.Errorf("no entry in the list is called %s", verdict.Quote(name))
	case 1:
		return at, nil
	default:
		return 0, fmt.Errorf("%d entries in the list are called %s", found, verdict.Quote(name))
	}
}

// noNextStep says why there is no command to copy; "": there is one.
func (m *model) noNextStep(r *row) string {
	v := r.entry.Judge(m.now)
	if len(nextSteps(m.snap, r.entry, &v)) > 0 {
		return ""
	}
	if !r.entry.Unseen.IsZero() {
		return m.notSeen(r)
	}
	return fmt.Sprintf("%s needs no command: %s", r.name, v.Sentence)
}
