-- One append to a reply log, which also moves the marks that the log must keep and trims behind the oldest.
--
-- Repeated after a lost answer it appends the same bytes again; readers skip what they know.
--
-- A full Redis refuses none: it lets a script go on that has written, and the first write takes no room.
--
-- A position older than the longest life can hold nothing of an open request: a mark put there (an idle log's
-- last entry may be days old) begins with this append, and a mark that stays there is dropped. So neither a
-- late copy of an append nor a lost reader keeps a busy log from being trimmed.
--
-- A log without the caller's last append has lost its end (a fail-over, a restart with AOF everysec): nothing is
-- written, so that the caller can put there again what it holds, in order. Trimming takes no such entry from a caller
-- who has something to put there: its requests' marks lie in front of it.
--
-- KEYS  log, marks
-- ARGV  payload ('' for none), log_ttl_ms, id of the caller's last append ('' for none), then pairs: name of a mark,
--       its milliseconds ('' removes it)
-- Answer id of the new entry, or '' without a payload; 'lost'
if ARGV[3] ~= '' and #redis.call('XRANGE', KEYS[1], ARGV[3], ARGV[3]) == 0 then
  return 'lost'
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local too_old = now - tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.0f', too_old))
for i = 4, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    redis.call('ZREM', KEYS[2], ARGV[i])
  elseif tonumber(ARGV[i + 1]) < too_old then
    -- A second early: the new entry's id may be of the millisecond before.
    redis.call('ZADD', KEYS[2], 'NX', string.format('%.0f', now - 1000), ARGV[i])
  else
    redis.call('ZADD', KEYS[2], ARGV[i + 1], ARGV[i])
  end
end
local id = ''
if ARGV[1] ~= '' then
  local oldest = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
  if oldest[2] then
    id = redis.call('XADD', KEYS[1], 'MINID', '~', string.format('%.0f', oldest[2]), '*', 'b', ARGV[1])
  else
    id = redis.call('XADD', KEYS[1], '*', 'b', ARGV[1])
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return id
