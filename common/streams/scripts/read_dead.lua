-- Dead letters, newest first: all of them without their bodies, or the one that was asked for with its body.
--
-- The bodies stay where they are while one looks: they are the largest part of a letter.
--
-- KEYS  dead
-- ARGV  where to begin ('+' for the newest, '(' before a position that is not wanted any more), how many to look at, id ('' for all)
-- Answer position of the last one looked at ('' at the end), then for each letter: position, number of words, words
local limit = tonumber(ARGV[2])
local page = redis.call('XREVRANGE', KEYS[1], ARGV[1], '-', 'COUNT', limit)
local answer = {''}
for _, entry in ipairs(page) do
  local words, is_wanted = {}, ARGV[3] == ''
  for i = 1, #entry[2], 2 do
    local name, value = entry[2][i], entry[2][i + 1]
    if name == 'id' and value == ARGV[3] then
      is_wanted = true
    end
    if name ~= 'body' or ARGV[3] ~= '' then
      words[#words + 1] = name
      words[#words + 1] = value
    end
  end
  if is_wanted then
    answer[#answer + 1] = entry[1]
    answer[#answer + 1] = tostring(#words)
    for _, word in ipairs(words) do
      answer[#answer + 1] = word
    end
  end
end
if #page == limit then
  answer[1] = page[#page][1]
end
return answer
