package schedule

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// zadd supports no options but NX and GT.
func (s *store) zadd(a []string) any {
	once, greater := len(a) == 4 && a[1] == "NX", len(a) == 4 && a[1] == "GT"
	if once || greater {
		a = append([]string{a[0]}, a[2:]...)
	}
	if len(a) != 3 {
		return errSyntax
	}
	score, err := strconv.ParseFloat(a[1], 64)
	if err != nil {
		return errors.New("ERR value is not a valid float")
	}
	v, err := s.create(a[0], "zset")
	if err != nil {
		return err
	}
	i := v.member(a[2])
	switch {
	case i < 0:
		v.queue = append(v.queue, member{score, a[2]})
	case once || greater && score <= v.queue[i].score:
		return int64(0)
	default:
		v.queue[i].score = score
	}
	slices.SortFunc(v.queue, func(x, y member) int { return cmp.Or(cmp.Compare(x.score, y.score), cmp.Compare(x.name, y.name)) })
	return count(i < 0)
}

// member returns the rank of a member of a sorted set, or -1.
func (v *value) member(name string) int {
	return slices.IndexFunc(v.queue, func(m member) bool { return m.name == name })
}

func (s *store) zscore(a []string) any {
	v, err := s.look(a[0], "zset")
	if err != nil {
		return err
	}
	if v != nil {
		if i := v.member(a[1]); i >= 0 {
			return v.queue[i].text()
		}
	}
	return nil
}

func (s *store) zrank(a []string) any {
	v, err := s.look(a[0], "zset")
	if err != nil {
		return err
	}
	if v != nil {
		if i := v.member(a[1]); i >= 0 {
			return int64(i)
		}
	}
	return nil
}

// text returns the score as Redis formats it.
func (m member) text() string { return strconv.FormatFloat(m.score, 'f', -1, 64) }

func (s *store) zrem(a []string) any {
	v, err := s.look(a[0], "zset")
	if err != nil {
		return err
	}
	if v == nil {
		return int64(0)
	}
	before := len(v.queue)
	v.queue = slices.DeleteFunc(v.queue, func(m member) bool { return slices.Contains(a[1:], m.name) })
	if len(v.queue) == 0 {
		delete(s.keys, a[0])
	}
	return int64(before - len(v.queue))
}

func (s *store) zcard(a []string) any {
	v, err := s.look(a[0], "zset")
	if err != nil {
		return err
	}
	if v == nil {
		return int64(0)
	}
	return int64(len(v.queue))
}

// zrange supports WITHSCORES, BYSCORE and LIMIT.
func (s *store) zrange(a []string) any {
	v, err := s.look(a[0], "zset")
	if err != nil {
		return err
	}
	list := []any{}
	if v == nil {
		return list
	}
	choose := v.ranks
	if slices.Contains(a[3:], "BYSCORE") {
		choose = v.scores
	}
	has, err := choose(a[1], a[2])
	if err != nil {
		return err
	}
	skip, left := 0, len(v.queue)
	if i := slices.Index(a, "LIMIT"); i >= 0 {
		var err1, err2 error
		skip, err1 = strconv.Atoi(a[i+1])
		if left, err2 = strconv.Atoi(a[i+2]); err1 != nil || err2 != nil {
			return errors.New("ERR value is not an integer or out of range")
		}
	}
	for i, m := range v.queue {
		if left == 0 || !has(i) {
			continue
		}
		if skip--; skip >= 0 {
			continue
		}
		left--
		if list = append(list, m.name); slices.Contains(a[3:], "WITHSCORES") {
			list = append(list, m.text())
		}
	}
	return list
}

// ranks returns a function that reports whether a member has a rank in a range. A negative rank
// counts from the end.
func (v *value) ranks(from, to string) (func(i int) bool, error) {
	first, err1 := strconv.Atoi(from)
	last, err2 := strconv.Atoi(to)
	if err1 != nil || err2 != nil {
		return nil, errors.New("ERR value is not an integer or out of range")
	}
	if first < 0 {
		first += len(v.queue)
	}
	if last < 0 {
		last += len(v.queue)
	}
	return func(i int) bool { return first <= i && i <= last }, nil
}

// scores returns a function that reports whether a member has a score in a range. "(" before a
// bound excludes it.
func (v *value) scores(from, to string) (func(i int) bool, error) {
	least, above := strings.CutPrefix(from, "(")
	most, below := strings.CutPrefix(to, "(")
	low, err1 := strconv.ParseFloat(least, 64)
	high, err2 := strconv.ParseFloat(most, 64)
	if err1 != nil || err2 != nil {
		return nil, errors.New("ERR min or max is not a float")
	}
	return func(i int) bool {
		score := v.queue[i].score
		return (low < score || low == score && !above) && (score < high || score == high && !below)
	}, nil
}
