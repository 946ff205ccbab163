package schedule

// RunAlone runs a schedule that the invariants judge without the rules.
func RunAlone(s Server, seed uint64) *Violation {
	_, v := play(s, seed, parts{unruled: true})
	return v
}
