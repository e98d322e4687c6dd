-- Give a lease back, if it is mine: what stays is an empty value, which says that nobody holds it and that the last
-- holder has finished, so that the next one need not wait. Answer 1 when it was mine.
--
-- KEYS  lease
-- ARGV  value, marker_ttl_ms
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])  -- takes no room: a full Redis lets a script go on that has written (docs/delivery.md)
  redis.call('SET', KEYS[1], '', 'PX', ARGV[2])
  return 1
end
return 0
