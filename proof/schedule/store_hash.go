package schedule

import "slices"

func (v *value) field(name string) any {
	if v != nil {
		for i := range v.fields {
			if v.fields[i].name == name {
				return v.fields[i].value
			}
		}
	}
	return nil
}

func (s *store) hget(a []string) any {
	v, err := s.look(a[0], "hash")
	if err != nil {
		return err
	}
	return v.field(a[1])
}

func (s *store) hmget(a []string) any {
	v, err := s.look(a[0], "hash")
	if err != nil {
		return err
	}
	list := make([]any, len(a)-1)
	for i, name := range a[1:] {
		list[i] = v.field(name)
	}
	return list
}

func (s *store) hset(a []string) any {
	v, err := s.create(a[0], "hash")
	if err != nil {
		return err
	}
	n := int64(0)
	for i := 1; i+1 < len(a); i += 2 {
		at := slices.IndexFunc(v.fields, func(f field) bool { return f.name == a[i] })
		if at < 0 {
			v.fields = append(v.fields, field{a[i], a[i+1]})
			n++
		} else {
			v.fields[at].value = a[i+1]
		}
	}
	return n
}

func (s *store) hdel(a []string) any {
	v, err := s.look(a[0], "hash")
	if err != nil {
		return err
	}
	if v == nil {
		return int64(0)
	}
	before := len(v.fields)
	v.fields = slices.DeleteFunc(v.fields, func(f field) bool { return slices.Contains(a[1:], f.name) })
	if len(v.fields) == 0 {
		delete(s.keys, a[0])
	}
	return int64(before - len(v.fields))
}
